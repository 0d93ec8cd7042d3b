"""A second implementation of the authenticated rendezvous, written from docs/security.md and the
Noise specification with Python's own library only. It is slow and leaks through its timing, which
does not matter in a test.

    channel = Channel(socket, SECRET, "member", "job")   # shakes hands
    channel.send(b"..."); channel.receive()              # plain text
"""
import hashlib
import hmac
import os
import struct

MAGIC, VERSION = b"CRUNsec1", 1
ROLES = {"member": 1, "operator": 2, "user": 3}
WRONG_KEY, NO_SECRET, OTHER_VERSION = 1, 2, 3

# ---- X25519 (RFC 7748) ----

PRIME, BASE_POINT = 2**255 - 19, b"\x09" + bytes(31)


def x25519(private, public):
    k = int.from_bytes(private, "little") & ~7 & (2**255 - 1) | 2**254
    u = int.from_bytes(public, "little") & (2**255 - 1)
    x2, z2, x3, z3, swapped = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swapped ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swapped = bit
        a, b, c, d = (x2 + z2) % PRIME, (x2 - z2) % PRIME, (x3 + z3) % PRIME, (x3 - z3) % PRIME
        da, cb = d * a % PRIME, c * b % PRIME
        x3, z3 = (da + cb)**2 % PRIME, u * (da - cb)**2 % PRIME
        aa, bb = a * a % PRIME, b * b % PRIME
        e = aa - bb
        x2, z2 = aa * bb % PRIME, e * (aa + 121665 * e) % PRIME
    if swapped:
        x2, z2 = x3, z3
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


# ---- ChaCha20-Poly1305 (RFC 8439) ----


def rotate(x, n):
    return (x << n | x >> 32 - n) & 0xffffffff


def quarter(s, a, b, c, d):
    for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & 0xffffffff
        s[z] = rotate(s[z] ^ s[x], n)


def chacha_block(key, counter, nonce):
    start = list(struct.unpack("<4I8II3I", b"expand 32-byte k" + key + struct.pack("<I", counter) +
                               nonce))
    s = list(start)
    for _ in range(10):
        for i in range(4):
            quarter(s, i, i + 4, i + 8, i + 12)
        for i in range(4):
            quarter(s, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xffffffff for a, b in zip(s, start)))


def chacha(key, nonce, data):
    stream = b"".join(chacha_block(key, 1 + i, nonce) for i in range((len(data) + 63) // 64))
    return bytes(a ^ b for a, b in zip(data, stream))


def poly1305(key, data):
    r = int.from_bytes(key[:16], "little") & 0x0ffffffc0ffffffc0ffffffc0fffffff
    total = 0
    for i in range(0, len(data), 16):
        block = data[i:i + 16] + b"\x01"
        total = (total + int.from_bytes(block, "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) & (2**128 - 1)).to_bytes(16, "little")


def padded(data):
    return data + bytes(-len(data) % 16)


def tag_of(key, nonce, ad, sealed):
    text = padded(ad) + padded(sealed) + struct.pack("<QQ", len(ad), len(sealed))
    return poly1305(chacha_block(key, 0, nonce)[:32], text)


class Cipher:
    """One direction of a connection; counts the messages."""

    def __init__(self, key):
        self.key, self.count = key, 0

    def nonce(self):
        self.count += 1
        return bytes(4) + struct.pack("<Q", self.count - 1)

    def seal(self, plain, ad=b""):
        nonce = self.nonce()
        sealed = chacha(self.key, nonce, plain)
        return sealed + tag_of(self.key, nonce, ad, sealed)

    def unseal(self, data, ad=b""):
        nonce = self.nonce()
        if tag_of(self.key, nonce, ad, data[:-16]) != data[-16:]:
            raise ValueError("not authentic")
        return chacha(self.key, nonce, data[:-16])


# ---- Noise_NNpsk0_25519_ChaChaPoly_SHA256, the initiator ----


def mac(key, *pieces):
    return hmac.new(key, b"".join(pieces), hashlib.sha256).digest()


def derive(ck, data, count):
    secret, out = mac(ck, data), [b""]
    for i in range(count):
        out.append(mac(secret, out[-1], bytes([i + 1])))
    return out[1:]


class Initiator:
    def __init__(self, prologue, psk, private=None):
        self.ck = self.h = hashlib.sha256(b"Noise_NNpsk0_25519_ChaChaPoly_SHA256").digest()
        self.private = private or os.urandom(32)
        self.mix_hash(prologue)
        self.ck, hashed, key = derive(self.ck, psk, 3)
        self.mix_hash(hashed)
        self.cipher = Cipher(key)

    def mix_hash(self, data):
        self.h = hashlib.sha256(self.h + data).digest()

    def mix_key(self, data):
        self.ck, key = derive(self.ck, data, 2)
        self.cipher = Cipher(key)

    def first(self, payload=b""):
        public = x25519(self.private, BASE_POINT)
        self.mix_hash(public)
        self.mix_key(public)
        sealed = self.cipher.seal(payload, self.h)
        self.mix_hash(sealed)
        return public + sealed

    def second(self, message):
        public, sealed = message[:32], message[32:]
        self.mix_hash(public)
        self.mix_key(public)
        self.mix_key(x25519(self.private, public))
        payload = self.cipher.unseal(sealed, self.h)
        self.mix_hash(sealed)
        return payload

    def split(self):
        return [Cipher(key) for key in derive(self.ck, b"", 2)]


# ---- what crun adds ----


def key_of(secret, role, run_id):
    """Returns the key of a role in a job, from a secret or from a line of `crun-agent key`."""
    if secret.startswith("crun-key:"):
        return bytes.fromhex(secret.split(":")[2])
    extracted = mac(b"crun rendezvous 1", secret.encode())
    return mac(extracted, role.encode(), b"\0", run_id.encode(), b"\x01")


def head_of(role, run_id, version=VERSION):
    return MAGIC + struct.pack(">BBH", version, ROLES[role], len(run_id)) + run_id.encode()


class Refused(Exception):
    """The coordinator has refused the handshake; args[0] is its reason, or None: it hung up."""


class Channel:
    def __init__(self, sock, secret, role, run_id, claims=None):
        """`claims`: (role, run id) of the key, if it is that of another role or job."""
        self.socket, self.pending = sock, b""
        key = key_of(secret, *(claims or (role, run_id)))
        head = head_of(role, run_id)
        noise = Initiator(head, key)
        sock.sendall(head + noise.first())
        answer = self.exactly(5)
        if answer == b"CRUNA":
            raise Refused(self.exactly(1)[0])
        if answer != b"CRUNK":
            raise Refused(None)
        noise.second(self.exactly(48))
        self.sends, self.receives = noise.split()

    def exactly(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                return data
            data += more
        return data

    def record(self, plain):
        sealed = self.sends.seal(plain)
        return struct.pack(">H", len(sealed)) + sealed

    def send(self, plain):
        self.socket.sendall(self.record(plain))

    # the two calls of a socket that rdzv_raw needs
    sendall = send

    def recv(self, n):
        """Returns up to n bytes of plain text; b"" at the end of the stream."""
        while not self.pending:
            head = self.exactly(2)
            if len(head) < 2:
                return b""
            self.pending = self.receives.unseal(self.exactly(struct.unpack(">H", head)[0]))
        plain, self.pending = self.pending[:n], self.pending[n:]
        return plain

    def close(self):
        self.socket.close()
