#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Debian 11: glibc 2.31, where the lookups are in libdl, and rdma-core 33.
exec "$(dirname "$0")/root.sh" bullseye
