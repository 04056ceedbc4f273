// MD2 against the vectors of RFC 1319, and its keyed form against itself.
#include "../lib/basis/basis.h"

#include <stdio.h>

static int failures;

static void check(const char *text, const char *want) {
	uint8_t digest[16];
	char got[33];
	md2(text, strlen(text), digest);
	for (int i = 0; i < 16; i++)
		sprintf(got + 2 * i, "%02x", digest[i]);
	if (strcmp(got, want) != 0) {
		fprintf(stderr, "MD2(\"%s\") is %s, not %s\n", text, got, want);
		failures++;
	}
}

// A key that is longer than a block counts by its digest.
static void check_long_key(void) {
	const uint8_t key[] = "a key that is longer than a block";
	uint8_t digest[16], a[16], b[16];
	md2(key, sizeof key, digest);
	hmac_md2(key, sizeof key, "text", 4, a);
	hmac_md2(digest, 16, "text", 4, b);
	if (memcmp(a, b, 16) != 0) {
		fprintf(stderr, "a long key counts differently from its digest\n");
		failures++;
	}
}

// By hand, as RFC 2104 spells it.
static void check_hmac(void) {
	uint8_t text[16 + 3], outer[32], want[16], got[16];
	for (int i = 0; i < 16; i++) {
		text[i] = (uint8_t)(i < 4 ? "key!"[i] : 0) ^ 0x36;
		outer[i] = text[i] ^ 0x36 ^ 0x5c;
	}
	memcpy(text + 16, "abc", 3);
	md2(text, sizeof text, outer + 16);
	md2(outer, sizeof outer, want);
	hmac_md2((const uint8_t *)"key!", 4, "abc", 3, got);
	if (memcmp(got, want, 16) != 0) {
		fprintf(stderr, "the keyed digest is wrong\n");
		failures++;
	}
}

int main(void) {
	check("", "8350e5a3e24c153df2275c9f80692773");
	check("a", "32ec01ec4a6dac72c0ab96fb34c0b5d1");
	check("abc", "da853b0d3f88d99b30283a69e6ded6bb");
	check("message digest", "ab4f496bfb2a530b219ff33031fe06b0");
	check("abcdefghijklmnopqrstuvwxyz", "4e8ddff3650292ab5a4108c3aa47940b");
	check("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "da33def2a42df13975352846c30338cd");
	check("12345678901234567890123456789012345678901234567890123456789012345678901234567890", "d5976f79d83d3a0dc9806c3c66f3efd8");
	check_long_key();
	check_hmac();
	return failures > 0;
}
