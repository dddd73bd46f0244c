/* Keys as people keep them: 64 hexadecimal digits. */
#include "halage/transport/sealed.h"

#include <sodium.h>
#include <string.h>

_Static_assert(HLG_SEALED_KEY_DIGITS == 2 * HLG_SEALED_KEY_BYTES, "two digits a byte");

int hlg_sealed_key_make(uint8_t key[HLG_SEALED_KEY_BYTES])
{
    if (sodium_init() < 0) {
        return -HLG_EIO;
    }
    randombytes_buf(key, HLG_SEALED_KEY_BYTES);
    return 0;
}

void hlg_sealed_key_print(const uint8_t key[HLG_SEALED_KEY_BYTES],
                          char text[HLG_SEALED_KEY_DIGITS + 1])
{
    (void)sodium_bin2hex(text, HLG_SEALED_KEY_DIGITS + 1, key, HLG_SEALED_KEY_BYTES);
}

bool hlg_sealed_key_parse(const char *text, uint8_t key[HLG_SEALED_KEY_BYTES])
{
    static const char spaces[] = " \t\r\n";
    uint8_t bytes[HLG_SEALED_KEY_BYTES];
    size_t count = 0;

    text += strspn(text, spaces);
    const size_t digits = strspn(text, "0123456789abcdefABCDEF");
    if (digits != HLG_SEALED_KEY_DIGITS || text[digits + strspn(text + digits, spaces)] != 0 ||
        sodium_hex2bin(bytes, sizeof bytes, text, digits, NULL, &count, NULL) != 0 ||
        count != sizeof bytes) {
        return false;
    }
    memcpy(key, bytes, sizeof bytes);
    sodium_memzero(bytes, sizeof bytes);
    return true;
}
