#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Debian 13: glibc 2.41 and rdma-core 56.
exec "$(dirname "$0")/root.sh" trixie
