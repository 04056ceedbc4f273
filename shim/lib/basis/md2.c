// The message digest MD2 of RFC 1319, and HMAC (RFC 2104) with it. Layer: basis. Only
// export_tables.c needs them: the CUDA runtime checks a driver with them.
#include "basis.h"

// A permutation of the bytes made from the digits of pi.
static const uint8_t pi[256] = {
	41, 46, 67, 201, 162, 216, 124, 1, 61, 54, 84, 161, 236, 240, 6, 19, 98, 167, 5, 243, 192, 199, 115, 140, 152, 147, 43, 217, 188, 76, 130, 202,
	30, 155, 87, 60, 253, 212, 224, 22, 103, 66, 111, 24, 138, 23, 229, 18, 190, 78, 196, 214, 218, 158, 222, 73, 160, 251, 245, 142, 187, 47, 238, 122,
	169, 104, 121, 145, 21, 178, 7, 63, 148, 194, 16, 137, 11, 34, 95, 33, 128, 127, 93, 154, 90, 144, 50, 39, 53, 62, 204, 231, 191, 247, 151, 3,
	255, 25, 48, 179, 72, 165, 181, 209, 215, 94, 146, 42, 172, 86, 170, 198, 79, 184, 56, 210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4, 241,
	69, 157, 112, 89, 100, 113, 135, 32, 134, 91, 207, 101, 230, 45, 168, 2, 27, 96, 37, 173, 174, 176, 185, 246, 28, 70, 97, 105, 52, 64, 126, 15,
	85, 71, 163, 35, 221, 81, 175, 58, 195, 92, 249, 206, 186, 197, 234, 38, 44, 83, 13, 110, 133, 40, 132, 9, 211, 223, 205, 244, 65, 129, 77, 82, 106,
	220, 55, 200, 108, 193, 171, 250, 36, 225, 123, 8, 12, 189, 177, 74, 120, 136, 149, 139, 227, 99, 232, 109, 233, 203, 213, 254, 59, 0, 29, 57, 242,
	239, 183, 14, 102, 88, 208, 228, 166, 119, 114, 248, 235, 117, 75, 10, 49, 68, 80, 180, 143, 237, 31, 26, 219, 153, 141, 51, 159, 17, 131, 20,
};

struct md2_state {
	uint8_t sum[16], x[48], last;
};

static void block(struct md2_state *s, const uint8_t in[16]) {
	for (int i = 0; i < 16; i++) {
		s->sum[i] ^= pi[in[i] ^ s->last];
		s->last = s->sum[i];
	}
}

static void mix(struct md2_state *s, const uint8_t in[16]) {
	for (int i = 0; i < 16; i++) {
		s->x[16 + i] = in[i];
		s->x[32 + i] = s->x[16 + i] ^ s->x[i];
	}
	unsigned t = 0;
	for (unsigned round = 0; round < 18; round++) {
		for (int i = 0; i < 48; i++)
			t = s->x[i] ^= pi[t];
		t = (t + round) % 256;
	}
}

// Digests two texts as one.
static void digest_both(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t digest[16]) {
	struct md2_state s = {0};
	uint8_t buffer[16];
	size_t fill = 0;
	for (size_t i = 0; i < a_size + b_size; i++) {
		buffer[fill++] = i < a_size ? a[i] : b[i - a_size];
		if (fill == 16) {
			mix(&s, buffer);
			block(&s, buffer);
			fill = 0;
		}
	}
	memset(buffer + fill, (int)(16 - fill), 16 - fill);
	mix(&s, buffer);
	block(&s, buffer);
	uint8_t sum[16];
	memcpy(sum, s.sum, 16);
	mix(&s, sum);
	memcpy(digest, s.x, 16);
}

void md2(const void *data, size_t size, uint8_t digest[16]) { digest_both(data, size, NULL, 0, digest); }

void hmac_md2(const uint8_t *key, size_t key_size, const void *data, size_t size, uint8_t digest[16]) {
	uint8_t inner[16] = {0}, outer[16], first[16];
	if (key_size > 16)
		md2(key, key_size, inner);
	else
		memcpy(inner, key, key_size);
	for (int i = 0; i < 16; i++) {
		outer[i] = inner[i] ^ 0x5c;
		inner[i] ^= 0x36;
	}
	digest_both(inner, 16, data, size, first);
	digest_both(outer, 16, first, 16, digest);
}
