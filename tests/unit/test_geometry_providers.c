/* SPDX-License-Identifier: MIT */
/*
 * What requests become on providers that cannot be tried here: at least six rows each, worked out
 * by hand from the formulas that the heads of policy/geometry_*.c cite, with the arithmetic beside
 * them. Pages are of 4096 bytes. Needs policy/ alone.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "policy/geometry.h"

#define PAGE	    UINT64_C(4096)
#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

enum { RC = QP_TYPE_RC, UC = QP_TYPE_UC, UD = QP_TYPE_UD, RAW = QP_TYPE_RAW_PACKET };

static struct queue_bytes bytes;
static struct prediction p;

/* --- queue pairs --- */

struct qp_row {
	const char *driver;
	uint32_t type;
	struct qp_caps caps; /* send WRs, receive WRs, send SGEs, receive SGEs, inline bytes */
	bool has_srq;
	uint64_t sq, rq, bookkeeping;
};

static const struct qp_row qps[] = {
	/* mlx4: slot of the send ring, 2048 / slot + 1 spare; bookkeeping: rest of the page, struct
	 * 520, 8 for each slot of both rings, 4 for a receive doorbell */
	/* max(16 + 16, 48) + 16 = 64; pow2(1 + 33) = 64 slots; 1 of 16 */
	{ "mlx4", RC, { 1, 1, 1, 1, 0 }, false, 4096, 16, 4080 + 520 + 8 * 65 + 4 },
	/* pow2(128 + 33) = 256 of 64; 128 of 16 */
	{ "mlx4", RC, { 128, 128, 1, 1, 0 }, false, 16384, 2048, 2048 + 520 + 8 * 384 + 4 },
	/* 48 + 16 + 16 = 80 -> 128; 17 spare: pow2(145) = 256; 128 of 64 */
	{ "mlx4", RC, { 128, 128, 3, 4, 0 }, false, 32768, 8192, 520 + 8 * 384 + 4 },
	/* 16 + 48 + 16 = 80 -> 128: 256 of 128 */
	{ "mlx4", UD, { 128, 128, 1, 1, 0 }, false, 32768, 2048, 2048 + 520 + 8 * 384 + 4 },
	/* pow2(4000 + 33) = 4096 of 64 */
	{ "mlx4", RC, { 4000, 1, 1, 1, 0 }, true, 262144, 0, 520 + 8 * 4096 },
	/* inline 100: (100 + 32) -> 3 chunks: 112 in 16s: 112 + 16 + 16 = 144 -> 256; 9 spare:
	 * pow2(73) = 128 of 256 */
	{ "mlx4", RC, { 64, 64, 1, 1, 100 }, false, 32768, 1024, 3072 + 520 + 8 * 192 + 4 },
	/* XRC has no receive ring: 64 slots of 64 */
	{ "mlx4", QP_TYPE_XRC_SEND, { 31, 5, 1, 1, 0 }, false, 4096, 0, 520 + 8 * 64 },

	/* siw: slots of 120 and 112, depths to powers of two, pages; struct 264 */
	{ "siw", RC, { 1, 1, 1, 1, 0 }, false, 120, 112, 264 + 3976 + 3984 },
	{ "siw", RC, { 128, 128, 1, 1, 0 }, false, 15360, 14336, 264 + 1024 + 2048 },
	{ "siw", RC, { 100, 60, 6, 6, 80 }, false, 15360, 7168, 264 + 1024 + 1024 },
	{ "siw", RC, { 129, 0, 1, 0, 0 }, false, 30720, 0, 264 + 2048 },
	{ "siw", RC, { 0, 512, 0, 1, 0 }, false, 0, 57344, 264 },
	{ "siw", RC, { 32, 32, 1, 1, 0 }, true, 3840, 0, 264 + 256 },

	/* irdma: quanta of 32 << shift, 258 in reserve; rings to 4096; 64 shadow, struct 1024, 16
	 * and 8 for each quantum */
	/* 2 fragments: shift 1: 2 + 258 -> 512 quanta; 1 fragment: shift 0: 2 -> at least 8 */
	{ "irdma", RC, { 1, 1, 1, 1, 0 }, false, 16384, 256, 3840 + 1088 + 16 * 512 + 8 * 8 },
	/* 256 + 258 -> 1024: the reserve alone doubles it; 128 + 1 -> 256 */
	{ "irdma", RC, { 128, 128, 1, 1, 0 }, false, 32768, 8192, 1088 + 16 * 1024 + 8 * 256 },
	/* 127 << 1 and 258 are 512 exactly */
	{ "irdma", RC, { 127, 127, 1, 1, 0 }, false, 16384, 4096, 1088 + 16 * 512 + 8 * 128 },
	/* 4 fragments: shift 2: 512 + 258 -> 1024; 3: shift 1: 257 -> 512 */
	{ "irdma", UD, { 128, 128, 3, 3, 0 }, false, 32768, 16384, 1088 + 16 * 1024 + 8 * 512 },
	/* inline 102: shift 3: 1024 + 258 -> 2048; 8 fragments: shift 3: 1025 -> 2048 */
	{ "irdma", RC, { 128, 128, 1, 8, 102 }, false, 65536, 65536, 1088 + 24 * 2048 },
	/* no fragments: 0 + 1 -> shift 0: 100 + 258 -> 512 */
	{ "irdma", RC, { 100, 0, 0, 0, 8 }, false, 16384, 256, 3840 + 1088 + 16 * 512 + 8 * 8 },
	/* an SRQ: a ring for one request stays, least 8 */
	{ "irdma", RC, { 128, 900, 1, 5, 0 }, true, 32768, 256, 3840 + 1088 + 16 * 1024 + 8 * 8 },

	/* bnxt_re: 128 a request, pow2(wr + 1 + 128) and pow2(wr + 1); 16 of PSN a send; one slab
	 * of 624 + 2 * 128 + rings to pages + 40 a request, to pages */
	/* pow2(130) = 256: 32768 + 4096; pow2(2) = 2: 256 -> 4096; 880 + 36864 + 4096 + 40 * 258 =
	 * 52160 -> 53248 */
	{ "bnxt_re", RC, { 1, 1, 1, 1, 0 }, false, 32768, 256, 53248 - 33024 },
	/* pow2(257) = 512: 65536 + 8192; pow2(129) = 256: 32768; 880 + 106496 + 40 * 768 = 138096
	 * -> 139264 */
	{ "bnxt_re", RC, { 128, 128, 1, 1, 0 }, false, 65536, 32768, 139264 - 98304 },
	/*
	 * the last that 256 slots hold: 127 + 129; 880 + 36864 + 16384 + 40 * 384 = 69488 -> 69632
	 */
	{ "bnxt_re", RC, { 127, 127, 1, 1, 0 }, false, 32768, 16384, 69632 - 49152 },
	/* SGEs and inline data change nothing */
	{ "bnxt_re", UD, { 127, 127, 6, 6, 96 }, false, 32768, 16384, 69632 - 49152 },
	/* an SRQ: 624 + 128 + 36864 + 40 * 256 = 47856 -> 49152 */
	{ "bnxt_re", RC, { 127, 127, 1, 1, 0 }, true, 32768, 0, 49152 - 32768 },
	/* pow2(1153) = 2048: 262144 + 32768; pow2(513) = 1024: 131072; 880 + 425984 + 40 * 3072 =
	 * 549744 -> 552960 */
	{ "bnxt_re", RC, { 1024, 512, 2, 2, 0 }, false, 262144, 131072, 552960 - 393216 },

	/* efa: a copy of the ring on the heap, 64 or 128 a request; descriptors of 16; 12 beside
	 * each request and each receive */
	{ "efa", UD, { 128, 128, 1, 1, 0 }, false, 8192, 2048, 2048 + 12 * 256 },
	{ "efa", UD, { 128, 128, 1, 1, 32 }, false, 8192, 2048, 2048 + 12 * 256 },
	{ "efa", UD, { 128, 128, 1, 1, 33 }, false, 16384, 2048, 2048 + 12 * 256 },
	/* 100 -> 128; 3 * 100 -> 512 descriptors for 170 receives */
	{ "efa", UD, { 100, 100, 2, 3, 0 }, false, 8192, 8192, 12 * (128 + 170) },
	{ "efa", QP_TYPE_DRIVER, { 256, 512, 1, 2, 0 }, false, 16384, 16384, 12 * 768 },
	{ "efa", UD, { 1, 1, 1, 1, 0 }, false, 64, 16, 4080 + 12 * 2 },

	/* hns: 64 a send, at least 64 of them; SGEs beyond 2 (UD: all) of 16 in a region of at
	 * least 4096; receives of 16 * pow2(sge + 1); regions to 4096; 8 each, doorbells of 4 */
	{ "hns", RC, { 1, 1, 1, 1, 0 }, false, 4096, 32, 4064 + 8 * 65 + 8 },
	{ "hns", RC, { 128, 128, 2, 1, 0 }, false, 8192, 4096, 8 * 256 + 8 },
	/* 1 beyond: 128 of 16 = 2048, at least 4096; 4 + 1 -> 8 SGEs: 128 */
	{ "hns", RC, { 128, 128, 3, 4, 0 }, false, 8192 + 4096, 16384, 8 * 256 + 8 },
	/* 6 beyond: pow2(128 * 6) = 1024 of 16; 3 + 1 = 4 SGEs: 64 */
	{ "hns", RC, { 128, 128, 8, 3, 0 }, false, 8192 + 16384, 8192, 8 * 256 + 8 },
	/* UD: all 3: pow2(192) = 256 of 16 */
	{ "hns", UD, { 64, 64, 3, 1, 0 }, false, 4096 + 4096, 2048, 2048 + 8 * 128 + 8 },
	{ "hns", RC, { 100, 100, 1, 1, 0 }, true, 8192, 0, 8 * 128 + 4 },

	/*
	 * erdma: pow2(4 * wr) and pow2(wr) units of 32, to 4096; 8 a unit, doorbell 16, struct 304
	 */
	{ "erdma", RC, { 1, 1, 1, 1, 0 }, false, 128, 32, 3968 + 4064 + 8 * 5 + 320 },
	{ "erdma", RC, { 128, 128, 1, 1, 0 }, false, 16384, 4096, 8 * 640 + 320 },
	{ "erdma", RC, { 129, 129, 1, 1, 0 }, false, 32768, 8192, 8 * 1280 + 320 },
	/* 4 * 96 = 384 -> 512 */
	{ "erdma", RC, { 96, 100, 6, 6, 96 }, false, 16384, 4096, 8 * 640 + 320 },
	{ "erdma", RC, { 1024, 256, 1, 1, 0 }, false, 131072, 8192, 8 * 4352 + 320 },
	/* 4 * 33 = 132 -> 256; 32 units of 32 = 1024 */
	{ "erdma", RC, { 33, 17, 1, 1, 0 }, false, 8192, 1024, 3072 + 8 * 288 + 320 },

	/* mana: 4 queues; al32(16 * (sge + 1) + 32) and al32(16 * sge + 16), powers of two of at
	 * least 4096; two of 4096 for the answers; 16 of rollback, struct 648, 24 a request */
	/* 64 and 32: 8192 and 4096 */
	{ "mana", RC, { 128, 128, 1, 1, 0 }, false, 8192, 4096, 8192 + 664 + 24 * 256 },
	{ "mana", RC, { 1, 1, 1, 1, 0 }, false, 4096, 4096, 8192 + 664 + 24 * 2 },
	/* 3 SGEs: 96; 128 * 96 = 12288 -> 16384; 64: 8192 */
	{ "mana", RC, { 128, 128, 3, 3, 0 }, false, 16384, 8192, 8192 + 664 + 24 * 256 },
	/* 100 * 64 = 6400 -> 8192; 100 * 32 -> 4096; 128 each in the shadows */
	{ "mana", RC, { 100, 100, 1, 1, 0 }, false, 8192, 4096, 8192 + 664 + 24 * 256 },
	/* no SGE counts as one to send; 16 -> 32 to receive */
	{ "mana", RC, { 64, 256, 0, 0, 0 }, false, 4096, 8192, 8192 + 664 + 24 * 320 },
	/* 2 SGEs: 80 -> 96: 1024 * 96 -> 131072; 48 -> 64: 65536 */
	{ "mana", RC, { 1024, 1024, 2, 2, 0 }, false, 131072, 65536, 8192 + 664 + 24 * 2048 },

	/* qedr: 16 for each of the device's SGEs (4 if it says nothing); pages, one more a ring; 8
	 * each; struct 704 */
	{ "qedr", RC, { 128, 128, 1, 1, 0 }, false, 8192, 8192, 8192 + 8 * 256 + 704 },
	{ "qedr", RC, { 1, 1, 1, 1, 0 }, false, 64, 64, 2 * 4032 + 8192 + 8 * 2 + 704 },
	/* depths of 0 become 1 */
	{ "qedr", RC, { 0, 0, 1, 1, 0 }, false, 64, 64, 2 * 4032 + 8192 + 8 * 2 + 704 },
	/* exact depths: 100 * 64 = 6400 -> 8192 */
	{ "qedr", RC, { 100, 100, 4, 4, 0 }, false, 6400, 6400, 2 * 1792 + 8192 + 8 * 200 + 704 },
	{ "qedr", RC, { 128, 128, 1, 1, 0 }, true, 8192, 0, 4096 + 8 * 128 + 704 },
	{ "qedr", UD, { 64, 640, 2, 2, 0 }, false, 4096, 40960, 8192 + 8 * 704 + 704 },

	/* cxgb4: an estimate: 320 and 128 a request in pages, 96 and 16 beside */
	{ "cxgb4", RC, { 128, 128, 1, 1, 0 }, false, 40960, 16384, 96 * 128 + 16 * 128 },
	{ "cxgb4", RC, { 1, 1, 1, 1, 0 }, false, 320, 128, 3776 + 3968 + 112 },
	{ "cxgb4", RC, { 64, 64, 4, 4, 0 }, false, 20480, 8192, 96 * 64 + 16 * 64 },
	{ "cxgb4", RC, { 64, 64, 4, 4, 0 }, true, 20480, 0, 96 * 64 },
	{ "cxgb4", RC, { 0, 32, 4, 4, 0 }, false, 0, 4096, 16 * 32 },
	{ "cxgb4", RC, { 10, 40, 1, 1, 0 }, false, 3200, 5120, 896 + 3072 + 960 + 640 },

	/*
	 * vmw_pvrdma: pow2(80 + 16 * sge) and pow2(16 + 16 * sge), pages, one page of state; 8 each
	 */
	{ "vmw_pvrdma", RC, { 128, 128, 1, 1, 0 }, false, 16384, 4096, 4096 + 8 * 256 },
	/* 80 + 48 = 128 exactly; 64 + 16 = 80 -> 128 */
	{ "vmw_pvrdma", RC, { 128, 128, 3, 4, 0 }, false, 16384, 16384, 4096 + 8 * 256 },
	/* 144 -> 256 */
	{ "vmw_pvrdma", RC, { 128, 128, 4, 3, 0 }, false, 32768, 8192, 4096 + 8 * 256 },
	{ "vmw_pvrdma", UD, { 100, 100, 1, 1, 0 }, false, 16384, 4096, 4096 + 8 * 256 },
	{ "vmw_pvrdma", RC, { 1, 1, 1, 1, 0 }, false, 128, 32, 4096 + 3968 + 4064 + 16 },
	{ "vmw_pvrdma", RC, { 32, 32, 1, 1, 0 }, true, 4096, 0, 4096 + 8 * 32 },

	/* ionic: the power of two above; slots of pow2(32 + max(16 * sge, inline)), at least 64;
	 * struct 784, 34 and 18 a slot */
	/* 128 doubles to 256 */
	{ "ionic", RC, { 128, 128, 1, 1, 0 }, false, 16384, 16384, 784 + 52 * 256 },
	{ "ionic", RC, { 127, 127, 1, 1, 0 }, false, 8192, 8192, 784 + 52 * 128 },
	/* 32 + 48 = 80 -> 128; 32 + 32 = 64 */
	{ "ionic", RC, { 128, 128, 3, 2, 0 }, false, 32768, 16384, 784 + 52 * 256 },
	/* a page at least: 64 slots of 64 */
	{ "ionic", RC, { 1, 1, 1, 1, 0 }, false, 4096, 4096, 784 + 52 * 64 },
	/* 32 + 100 = 132 -> 256: 16 of them are a page */
	{ "ionic", UD, { 3, 3, 1, 1, 100 }, false, 4096, 4096, 784 + 34 * 16 + 18 * 64 },
	{ "ionic",
	  RC,
	  { 1000, 2000, 2, 6, 32 },
	  false,
	  65536,
	  262144,
	  784 + 34 * 1024 + 18 * 2048 },

	/* ocrdma: an estimate: 64 + 16 * sge in pages, 16 and 8 beside; struct 480 */
	{ "ocrdma", RC, { 128, 128, 1, 1, 0 }, false, 10240, 10240, 2 * 2048 + 24 * 128 + 480 },
	{ "ocrdma", RC, { 64, 64, 4, 4, 0 }, false, 8192, 8192, 24 * 64 + 480 },
	{ "ocrdma", RC, { 64, 64, 4, 4, 0 }, true, 8192, 0, 16 * 64 + 480 },
	{ "ocrdma", UD, { 1, 1, 0, 0, 0 }, false, 64, 64, 2 * 4032 + 24 + 480 },
	{ "ocrdma", RC, { 0, 256, 0, 4, 0 }, false, 0, 32768, 8 * 256 + 480 },
	{ "ocrdma", RC, { 100, 0, 1, 0, 0 }, false, 8000, 0, 192 + 1600 + 480 },

	/* mthca: slots of at least 64; the send ring at a multiple of its slot; pages; 8 each */
	/* 16 + 16 + 16 -> at least 64; 32 -> 64 */
	{ "mthca", RC, { 128, 128, 1, 1, 0 }, false, 8192, 8192, 8 * 256 },
	{ "mthca", RC, { 100, 100, 1, 1, 0 }, false, 8192, 8192, 8 * 256 },
	/* 0 stays 0 */
	{ "mthca", RC, { 64, 0, 1, 0, 0 }, false, 4096, 0, 8 * 64 },
	/* 48 + 16 + 16 = 80 -> 128; 64 + 16 = 80 -> 128 */
	{ "mthca", RC, { 128, 128, 3, 4, 0 }, false, 16384, 16384, 8 * 256 },
	/* 16 + 48 + 16 = 80 -> 128 */
	{ "mthca", UD, { 128, 128, 1, 1, 0 }, false, 16384, 8192, 8 * 256 },
	/* inline 100: 112 + 16 + 16 = 144 -> 256; one receive of 64, then to 256: 4352 -> 8192 */
	{ "mthca", RC, { 16, 1, 1, 1, 100 }, false, 4096, 64, 8192 - 4160 + 8 * 17 },

	/* hfi1, ipath: 8 + (16 + 16 * sge) * (wr + 1) in pages, no send ring */
	{ "hfi1verbs", RC, { 128, 128, 1, 1, 0 }, false, 0, 4136, 8192 - 4136 },
	{ "hfi1verbs", RC, { 128, 127, 1, 1, 0 }, false, 0, 4104, 8192 - 4104 },
	{ "hfi1verbs", RC, { 1, 1, 1, 4, 0 }, false, 0, 168, 4096 - 168 },
	{ "hfi1verbs", RC, { 128, 128, 1, 1, 0 }, true, 0, 0, 0 },
	{ "hfi1verbs", UD, { 0, 255, 0, 2, 0 }, false, 0, 12296, 16384 - 12296 },
	{ "ipathverbs", RC, { 128, 128, 1, 1, 0 }, false, 0, 4136, 8192 - 4136 },
	{ "ipathverbs", UC, { 128, 63, 1, 3, 0 }, false, 0, 4104, 8192 - 4104 },
};

static bool estimates(const char *driver)
{
	return driver[0] == 'c' || driver[0] == 'o'; /* cxgb4, ocrdma: the kernel's affair */
}

START_TEST(queue_pairs_as_worked_by_hand)
{
	const struct qp_row *r = &qps[_i];
	struct qp_request req = { .type = r->type, .caps = r->caps, .has_srq = r->has_srq };

	geometry_qp_bytes(geometry_of(r->driver), &req, NULL, NULL, &bytes);
	ck_assert_msg(bytes.sq == r->sq && bytes.rq == r->rq && bytes.bookkeeping == r->bookkeeping,
		      "%s, row %d: %lu %lu %lu instead of %lu %lu %lu", r->driver, _i,
		      (unsigned long)bytes.sq, (unsigned long)bytes.rq,
		      (unsigned long)bytes.bookkeeping, (unsigned long)r->sq, (unsigned long)r->rq,
		      (unsigned long)r->bookkeeping);
	ck_assert_int_eq(bytes.basis, estimates(r->driver) ? BASIS_ESTIMATE : BASIS_MODEL);
	ck_assert_int_ne(bytes.place, PLACE_UNKNOWN);
}
END_TEST

/* --- what comes back --- */

struct back_row {
	const char *driver;
	uint32_t type;
	struct qp_caps caps, back;
};

static const struct back_row backs[] = {
	/* 64 - 33; 256 - 33; 256 - 17; (128 - 32) / 16 = 6, 96 - 4 * 2 */
	{ "mlx4", RC, { 1, 1, 1, 1, 0 }, { 31, 1, 2, 1, 28 } },
	{ "mlx4", RC, { 128, 128, 1, 1, 0 }, { 223, 128, 2, 1, 28 } },
	{ "mlx4", RC, { 128, 128, 3, 4, 0 }, { 239, 128, 6, 4, 88 } },
	{ "mlx4", UD, { 128, 128, 1, 1, 0 }, { 239, 128, 4, 1, 60 } },
	{ "mlx4", RC, { 4000, 1, 1, 1, 0 }, { 4063, 1, 2, 1, 28 } },
	/* (512 - 258) >> 1; (8 - 1) >> 0; (1024 - 258) >> 1; (1024 - 258) >> 2; (512 - 1) >> 1 */
	{ "irdma", RC, { 1, 1, 1, 1, 0 }, { 127, 7, 1, 1, 0 } },
	{ "irdma", RC, { 128, 128, 1, 1, 0 }, { 383, 255, 1, 1, 0 } },
	{ "irdma", RC, { 128, 128, 3, 3, 0 }, { 191, 255, 3, 3, 0 } },
	/* 512 descriptors for 3 SGEs each */
	{ "efa", UD, { 100, 100, 2, 3, 0 }, { 128, 170, 2, 3, 0 } },
	{ "efa", UD, { 128, 128, 1, 1, 0 }, { 128, 128, 1, 1, 0 } },
	/* pow2(4 + 1) - 1 */
	{ "hns", RC, { 1, 100, 3, 4, 20 }, { 64, 128, 3, 7, 32 } },
	{ "vmw_pvrdma", RC, { 100, 5, 1, 1, 0 }, { 128, 8, 1, 1, 0 } },
	/* 256 - 1; (64 - 32) / 16; 64 - 32 */
	{ "ionic", RC, { 128, 128, 1, 1, 0 }, { 255, 255, 2, 2, 32 } },
	{ "ionic", RC, { 127, 127, 3, 1, 0 }, { 127, 127, 6, 2, 96 } },
};

START_TEST(caps_that_come_back_as_worked_by_hand)
{
	const struct back_row *r = &backs[_i];
	struct qp_request req = { .type = r->type, .caps = r->caps };

	geometry_predict_qp(geometry_of(r->driver), &req, NULL, &p);
	ck_assert_int_eq(p.caps.max_send_wr, r->back.max_send_wr);
	ck_assert_int_eq(p.caps.max_recv_wr, r->back.max_recv_wr);
	ck_assert_int_eq(p.caps.max_send_sge, r->back.max_send_sge);
	ck_assert_int_eq(p.caps.max_recv_sge, r->back.max_recv_sge);
	ck_assert_int_eq(p.caps.max_inline_data, r->back.max_inline_data);
	ck_assert_int_ne(p.fate, FATE_REFUSED);
}
END_TEST

/* --- refusals --- */

static const struct {
	const char *driver;
	uint32_t type;
	struct qp_caps caps;
	int error; /* 0: the provider leaves errno as it was */
} refusals[] = {
	{ "mlx4", RC, { 1001, 1, 1, 1, 0 }, EINVAL },
	{ "mlx4", RC, { 1, 1, 1, 1, 1025 }, EINVAL },
	{ "siw", RC, { 1, 1, 7, 1, 0 }, EINVAL },
	{ "siw", RC, { 1, 1, 1, 1, 81 }, EINVAL },
	{ "irdma", UC, { 1, 1, 1, 1, 0 }, EOPNOTSUPP },
	{ "irdma", RC, { 1, 1, 31, 1, 0 }, EINVAL },
	{ "bnxt_re", UC, { 1, 1, 1, 1, 0 }, 0 },
	{ "bnxt_re", RC, { 1001, 1, 1, 1, 0 }, 0 },
	{ "efa", RC, { 1, 1, 1, 1, 0 }, EOPNOTSUPP },
	{ "efa", UD, { 1, 1, 1, 31, 0 }, EINVAL },
	{ "hns", RC, { 0, 1, 1, 1, 0 }, EINVAL },
	{ "hns", RC, { 1, 1, 1, 0, 0 }, EINVAL },
	{ "mana", UD, { 1, 1, 1, 1, 0 }, EOPNOTSUPP },
	{ "vmw_pvrdma", RC, { 1, 1001, 1, 1, 0 }, EINVAL },
	{ "ionic", RAW, { 1, 1, 1, 1, 0 }, ENOTSUP },
	{ "ionic", RC, { 65536, 1, 1, 1, 0 }, EINVAL },
	{ "mthca", RC, { 65537, 1, 1, 1, 0 }, 0 },
};

START_TEST(what_providers_refuse_is_foretold)
{
	static const struct device_facts small = {
		.limits = { .max_qp_wr = 1000, .max_sge = 30 },
	};
	struct qp_request req = { .type = refusals[_i].type, .caps = refusals[_i].caps };

	geometry_predict_qp(geometry_of(refusals[_i].driver), &req, &small, &p);
	ck_assert_msg(p.fate == FATE_REFUSED, "%s, row %d", refusals[_i].driver, _i);
	ck_assert_int_eq(p.error, refusals[_i].error);
}
END_TEST

/* --- completion queues, shared receive queues --- */

static const struct {
	const char *driver;
	uint32_t cqe;
	uint64_t ring, bookkeeping;
} cqs[] = {
	{ "mlx4", 1, 64, 4032 + 392 },		  /* 2 of 32 */
	{ "mlx4", 128, 8192, 392 },		  /* pow2(129) = 256 of 32 */
	{ "siw", 100, 4104, 4088 + 176 },	  /* 128 of 32 and 8 */
	{ "irdma", 1, 128, 3968 + 4096 },	  /* 2 * 2 of 32; a page of shadow */
	{ "irdma", 127, 8192, 4096 },		  /* 2 * 128 */
	{ "irdma", 128, 8256, 4032 + 4096 },	  /* 2 * 129 */
	{ "bnxt_re", 100, 4096, 0 },		  /* pow2(101) = 128 of 32 */
	{ "efa", 128, 4096, 0 },		  /* 128 of 16, two rings: no entry more */
	{ "efa", 129, 8192, 0 },		  /* 256 */
	{ "hns", 1, 2048, 2048 + 4 },		  /* at least 64 of 32 */
	{ "hns", 128, 4096, 4 },		  /* 128: no entry more */
	{ "erdma", 1, 2048, 2048 + 224 },	  /* at least 64 of 32 */
	{ "erdma", 200, 8192, 224 },		  /* 256 */
	{ "mana", 1, 4096, 0 },			  /* a page at least */
	{ "mana", 100, 8192, 0 },		  /* 6400 -> 8192 */
	{ "qedr", 127, 4096, 4096 + 248 },	  /* 128 of 32, a page for doorbells */
	{ "qedr", 128, 4128, 4064 + 4096 + 248 }, /* 129: no power of two */
	{ "cxgb4", 64, 4096, 4096 },		  /* the ring and its copy */
	{ "vmw_pvrdma", 64, 4096, 4096 },	  /* a page of state */
	{ "ionic", 28, 8192, 728 },		  /* 128 -> the power above: 256 of 32 */
	{ "ionic", 27, 4096, 728 },		  /* 127 -> 128 */
	{ "ocrdma", 64, 4096, 224 },		  /* an estimate */
	{ "mthca", 127, 4096, 0 },		  /* 128 of 32 */
	{ "mthca", 128, 8192, 0 },		  /* 256 */
	{ "hfi1verbs", 100, 4856, 3336 },	  /* 56 + 48 * 100 */
	{ "ipathverbs", 100, 4856, 3336 },
};

START_TEST(completion_queues_as_worked_by_hand)
{
	geometry_cq_bytes(geometry_of(cqs[_i].driver), cqs[_i].cqe, 0, NULL, &bytes);
	ck_assert_msg(bytes.rq == cqs[_i].ring && bytes.bookkeeping == cqs[_i].bookkeeping,
		      "%s of %u: %lu %lu", cqs[_i].driver, cqs[_i].cqe, (unsigned long)bytes.rq,
		      (unsigned long)bytes.bookkeeping);
}
END_TEST

static const struct {
	const char *driver;
	uint32_t wr, sge;
	uint64_t ring, bookkeeping;
} srqs[] = {
	{ "mlx4", 100, 1, 4096, 232 + 1024 + 4 },  /* 128 of 32; 8 each */
	{ "mlx4", 128, 2, 16384, 232 + 2048 + 4 }, /* 256 of 64 */
	{ "siw", 100, 3, 14336, 2048 + 152 },	   /* 128 of 112 */
	{ "irdma", 100, 1, 4096, 64 + 8 * 128 },   /* 101 -> 128 quanta */
	{ "bnxt_re", 100, 1, 16384, 40 * 128 },	   /* 128 of 128 */
	/* 128 of 32; indices of 4 in 4096; 8 each; a bitmap of 16 bytes */
	{ "hns", 100, 1, 4096, 4096 + 1024 + 16 },
	{ "qedr", 128, 1, 4096, 4096 + 272 },	     /* 128 of 2 * 16 */
	{ "cxgb4", 32, 1, 4096, 16 * 32 },	     /* an estimate: 128 each */
	{ "vmw_pvrdma", 128, 1, 8192, 4096 + 1024 }, /* twice 128 of 32, a page of state */
	{ "ocrdma", 64, 4, 8192, 512 + 8 },	     /* an estimate */
	{ "mthca", 63, 1, 4096, 512 },		     /* 64 of 64 */
	{ "hfi1verbs", 127, 1, 4104, 4088 },	     /* 8 + 128 * 32 */
};

START_TEST(shared_receive_queues_as_worked_by_hand)
{
	geometry_srq_bytes(geometry_of(srqs[_i].driver), srqs[_i].wr, srqs[_i].sge, NULL, &bytes);
	ck_assert_msg(bytes.rq == srqs[_i].ring && bytes.bookkeeping == srqs[_i].bookkeeping,
		      "%s of %u: %lu %lu", srqs[_i].driver, srqs[_i].wr, (unsigned long)bytes.rq,
		      (unsigned long)bytes.bookkeeping);
}
END_TEST

/* --- oddities --- */

START_TEST(efa_keeps_its_send_ring_in_the_adapter)
{
	struct qp_request req = { .type = UD, .caps = { 128, 128, 1, 1, 33 } };
	struct qp_caps back = { 256, 128, 1, 1, 33 }; /* the device's least depth */

	geometry_qp_bytes(geometry_of("efa"), &req, NULL, NULL, &bytes);
	ck_assert_int_eq(bytes.place, PLACE_DEVICE);
	ck_assert_uint_eq(bytes.device, 16384);
	ck_assert_uint_eq(queue_bytes_total(&bytes), bytes.sq + bytes.rq + bytes.bookkeeping);
	geometry_qp_bytes(geometry_of("efa"), &req, &back, NULL, &bytes);
	ck_assert_uint_eq(bytes.device, 32768);
	ck_assert_uint_eq(bytes.sq, 32768);
}
END_TEST

START_TEST(bnxt_re_doubles_cqs_where_the_device_has_the_room)
{
	static const struct device_facts dev = { .limits = { .max_cqe = 1000 } };

	geometry_cq_bytes(geometry_of("bnxt_re"), 100, 0, &dev, &bytes);
	ck_assert_uint_eq(bytes.rq, 256 * 32); /* pow2(201) */
	geometry_cq_bytes(geometry_of("bnxt_re"), 500, 0, &dev, &bytes);
	ck_assert_uint_eq(bytes.rq, 512 * 32); /* pow2(501): 1000 would not be less */
	geometry_cq_bytes(geometry_of("bnxt_re"), 999, 0, &dev, &bytes);
	ck_assert_uint_eq(bytes.rq, 1001 * 32); /* pow2(1000) = 1024, but 1000 + 1 at most */
}
END_TEST

START_TEST(hns_tells_by_what_comes_back_whether_it_keeps_an_sge)
{
	struct qp_request req = { .type = RC, .caps = { 64, 64, 1, 4, 0 } };
	struct qp_caps kept = { 64, 64, 1, 7, 0 }, not_kept = { 64, 64, 1, 4, 0 };

	geometry_qp_bytes(geometry_of("hns"), &req, &kept, NULL, &bytes);
	ck_assert_uint_eq(bytes.rq, 64 * 128);
	geometry_qp_bytes(geometry_of("hns"), &req, &not_kept, NULL, &bytes);
	ck_assert_uint_eq(bytes.rq, 64 * 64);
}
END_TEST

START_TEST(qedr_brings_depths_into_range)
{
	static const struct device_facts dev = { .limits = { .max_qp_wr = 256, .max_sge = 2 } };
	struct qp_request req = { .type = RC, .caps = { 100000, 0, 1, 1, 0 } };

	geometry_qp_bytes(geometry_of("qedr"), &req, NULL, &dev, &bytes);
	ck_assert_uint_eq(bytes.sq, 256 * 32);
	ck_assert_uint_eq(bytes.rq, 32);
}
END_TEST

START_TEST(providers_of_which_little_is_known_are_estimated)
{
	struct qp_request req = { .type = RAW, .caps = { 10, 10, 1, 1, 0 } };

	geometry_qp_bytes(geometry_of("mana"), &req, NULL, NULL, &bytes);
	ck_assert_int_eq(bytes.basis, BASIS_ESTIMATE); /* the application's own memory */
	geometry_srq_bytes(geometry_of("erdma"), 10, 1, NULL, &bytes);
	ck_assert_int_eq(bytes.basis, BASIS_ESTIMATE); /* it has no SRQs */
}
END_TEST

static const char *const drivers[] = {
	"bnxt_re", "cxgb4",	 "efa",	  "erdma", "hfi1verbs", "hns",
	"ionic",   "ipathverbs", "irdma", "mana",  "mlx4",	"mlx5",
	"mthca",   "ocrdma",	 "qedr",  "rxe",   "siw",	"vmw_pvrdma",
};

START_TEST(each_driver_has_its_row)
{
	ck_assert_str_eq(geometry_of(drivers[_i])->driver, drivers[_i]);
}
END_TEST

/* Totals do not wrap, whatever is asked. */
START_TEST(hostile_numbers_stay_enormous)
{
	const struct geometry *g = geometry_of(drivers[_i]);

	for (unsigned int type = RC; type <= QP_TYPE_XRC_RECV; type++) {
		struct qp_request req = { .type = type,
					  .caps = { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
						    UINT32_MAX } };
		uint64_t total;

		geometry_predict_qp(g, &req, NULL, &p);
		geometry_qp_bytes(g, &req, NULL, NULL, &bytes);
		total = queue_bytes_total(&bytes);
		ck_assert_uint_ge(total, bytes.sq);
		ck_assert_uint_ge(total, bytes.rq);
		ck_assert_uint_ge(total, bytes.bookkeeping);
		if (bytes.basis == BASIS_MODEL)
			ck_assert_uint_ge(total, UINT32_MAX);
	}
	geometry_cq_bytes(g, UINT32_MAX, 0, NULL, &bytes);
	ck_assert_uint_ge(queue_bytes_total(&bytes), 16ULL * UINT32_MAX);
	geometry_srq_bytes(g, UINT32_MAX, UINT32_MAX, NULL, &bytes);
	ck_assert_uint_ge(queue_bytes_total(&bytes), 64ULL * UINT32_MAX);
}
END_TEST

START_TEST(more_is_never_less)
{
	const struct geometry *g = geometry_of(drivers[_i]);
	uint64_t before = 0;

	for (uint32_t wr = 0; wr < 3000; wr++) {
		struct qp_request req = { .type = RC, .caps = { wr, wr, 2, 2, 0 } };

		geometry_qp_bytes(g, &req, NULL, NULL, &bytes);
		ck_assert_uint_ge(queue_bytes_total(&bytes), before);
		before = queue_bytes_total(&bytes);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("geometry of providers");
	TCase *c = tcase_create("providers");
	SRunner *sr;
	int failed;

	tcase_set_timeout(c, 60); /* the machine may be busy */
	if (sysconf(_SC_PAGESIZE) == (long)PAGE) {
		tcase_add_loop_test(c, queue_pairs_as_worked_by_hand, 0, COUNT(qps));
		tcase_add_loop_test(c, completion_queues_as_worked_by_hand, 0, COUNT(cqs));
		tcase_add_loop_test(c, shared_receive_queues_as_worked_by_hand, 0, COUNT(srqs));
	}
	tcase_add_loop_test(c, caps_that_come_back_as_worked_by_hand, 0, COUNT(backs));
	tcase_add_loop_test(c, what_providers_refuse_is_foretold, 0, COUNT(refusals));
	tcase_add_test(c, efa_keeps_its_send_ring_in_the_adapter);
	tcase_add_test(c, bnxt_re_doubles_cqs_where_the_device_has_the_room);
	tcase_add_test(c, hns_tells_by_what_comes_back_whether_it_keeps_an_sge);
	tcase_add_test(c, qedr_brings_depths_into_range);
	tcase_add_test(c, providers_of_which_little_is_known_are_estimated);
	tcase_add_loop_test(c, each_driver_has_its_row, 0, COUNT(drivers));
	tcase_add_loop_test(c, hostile_numbers_stay_enormous, 0, COUNT(drivers));
	tcase_add_loop_test(c, more_is_never_less, 0, COUNT(drivers));
	suite_add_tcase(s, c);
	sr = srunner_create(s);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
