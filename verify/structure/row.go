package structure

import (
	"fmt"
	"hash/maphash"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/rowkey"
)

// keyID stands for a user's key: 96 bits of a hash with random seeds. Of a billion
// keys, two have the same one with a probability of 10^-11.
type keyID [3]uint32

// row is what the history needs of a row of the bucket key.
type row struct {
	id              keyID
	main, sub       int64
	create, version int64
	crc, size       uint32 // of its bytes, up to the revision where HashKV needs them
	flags           uint32
}

// Flags of rows, and of the table's slots, which have flagBits for them.
const (
	taken   = 1 << iota // the slot has a key
	deleted             // the user's key was deleted
	bump                // a row without a value: it raises the revision
	noLease             // its lease does not exist
	broken              // it cannot be decoded
	torn                // rows may be missing before it
	suspect             // its numbers are wrong: what follows cannot be held against them
)

// hasher makes keyIDs.
type hasher [2]maphash.Seed

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (h *hasher) id(key []byte) keyID {
	a, b := maphash.Bytes(h[0], key), maphash.Bytes(h[1], key)
	return keyID{uint32(a >> 32), uint32(a), uint32(b)}
}

// keyValue is a decoded mvccpb.KeyValue, whose value nobody looks at.
type keyValue struct {
	key                           []byte
	create, mod, version, leaseID int64
	hasValue                      bool
}

// parseKeyValue decodes an mvccpb.KeyValue as etcd encodes it: each field once
// at most, in their order. Fields that are unknown are faults unless the
// database is of a newer etcd.
func parseKeyValue(b []byte, newer bool) (kv keyValue, err error) {
	last := protowire.Number(0)
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return kv, protowire.ParseError(n)
		}
		b = b[n:]
		if number <= last {
			return kv, fmt.Errorf("field %d comes after field %d", number, last)
		}
		last = number
		to := &kv.create
		switch number {
		case 1, 5:
			var bytes []byte
			if kind != protowire.BytesType {
				return kv, fmt.Errorf("field %d has the type %d", number, kind)
			}
			if bytes, n = protowire.ConsumeBytes(b); n < 0 {
				return kv, protowire.ParseError(n)
			}
			if number == 1 {
				kv.key = bytes
			} else {
				kv.hasValue = true
			}
			b = b[n:]
			continue
		case 2:
		case 3:
			to = &kv.mod
		case 4:
			to = &kv.version
		case 6:
			to = &kv.leaseID
		default:
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return kv, protowire.ParseError(n)
			}
			if !newer {
				return kv, fmt.Errorf("unknown field %d", number)
			}
			b = b[n:]
			continue
		}
		if kind != protowire.VarintType {
			return kv, fmt.Errorf("field %d has the type %d", number, kind)
		}
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return kv, protowire.ParseError(n)
		}
		*to, b = int64(v), b[n:]
	}
	return kv, nil
}

// faultOf says what is wrong with a row alone, without those before it; empty
// when nothing is.
func faultOf(r rowkey.Key, kv *keyValue) string {
	if len(kv.key) == 0 {
		return "it has no key"
	}
	if r.Deleted {
		if kv.create != 0 || kv.mod != 0 || kv.version != 0 || kv.leaseID != 0 || kv.hasValue {
			return "a deletion that holds more than the key"
		}
		return ""
	}
	switch {
	case kv.mod != r.Main:
		return fmt.Sprintf("its mod revision is %d", kv.mod)
	case kv.create < 1 || kv.create > r.Main:
		return fmt.Sprintf("its create revision is %d", kv.create)
	case kv.version < 1:
		return fmt.Sprintf("its version is %d", kv.version)
	case kv.version == 1 && kv.create != r.Main:
		return fmt.Sprintf("it is version 1, and was created at revision %d", kv.create)
	case kv.version-1 > r.Main-kv.create:
		return fmt.Sprintf("version %d cannot be reached since revision %d, where it was created", kv.version, kv.create)
	}
	return ""
}
