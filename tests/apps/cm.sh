#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What comes in by librdmacm: endpoints, QPs by rdma_create_qp and rsockets, and the events of the connection
# manager. It needs a device with a network interface behind it: rxe.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

if ! on_rxe; then
	skip "librdmacm" "the played device has no network interface"
	finish
fi
if [ ! -x "$apps/cm" ]; then
	skip "librdmacm" "its headers are not there"
	finish
fi
address=10.9.9.1

fresh
follow cm $address
expect "each QP by the way it came in, and none is librdmacm's own" \
	'[.qps[] | "\(.created_by) \(.library_owned)"] | sort | unique | join(", ")' \
	"rdma_create_ep false, rdma_create_qp false, rdma_get_request false"
expect "the CQs of endpoints are librdmacm's own, the program's is not" \
	'[.cqs[] | "\(.created_by) \(.library_owned)"] | sort | unique | join(", ")' \
	"create_cq false, create_cq true"
expect "events are counted by kind" \
	'.cm_events | "\(.connect_request.count) \(.established.count >= 1) \(.rejected.count >= 1) \(.rejected.with_status >= 1)"' \
	"2 true true true"
text=$(COLUMNS=300 "$qpguard" report "$state" | grep -c '^ *cm events .*rejected (status')
is "the text names a rejection and its status" "$text" 1

fresh
follow cm $address sockets
expect "the QPs of rsockets are librdmacm's own" \
	'[.qps[] | "\(.created_by) \(.library_owned)"] | unique | join(", ")' "rdma_create_qp true"
finish
