package engine

import (
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// operation is a request about keys, or one in a transaction: nearly all of a log are. They are
// read without protobuf, which takes many times as long and copies all values. What is here
// points into the entry.
type operation struct {
	kind     operationKind
	key, end []byte // end of a deletion
	put      put
	revision int64 // of a range
	txn      *transaction
}

type operationKind int

const (
	noOperation operationKind = iota
	rangeOperation
	putOperation
	deleteOperation
	txnOperation
)

// put is what a put does to its key.
type put struct {
	value                    []byte
	lease                    int64
	ignoreValue, ignoreLease bool
}

type transaction struct {
	compare          []comparison
	success, failure []operation
}

// comparison is a pb.Compare.
type comparison struct {
	key, end []byte
	result   pb.Compare_CompareResult
	target   pb.Compare_CompareTarget
	number   int64  // what is compared with
	value    []byte // the same, of the target VALUE
}

// The fields of InternalRaftRequest, and of its header.
const (
	fieldPut    protowire.Number = 4
	fieldDelete protowire.Number = 5
	fieldTxn    protowire.Number = 6

	headerID           protowire.Number = 1
	headerUser         protowire.Number = 2
	headerAuthRevision protowire.Number = 3
)

// maxTxnDepth is how deep transactions are read; members have clients' up to etcd's own limit, which is lower.
const maxTxnDepth = 64

// eachField calls take for each field of a message, until it does not know one.
func eachField(message []byte, take func(boltfile.Field) bool) bool {
	for len(message) > 0 {
		f, n := boltfile.ConsumeField(message)
		if n < 0 || !take(f) {
			return false
		}
		message = message[n:]
	}
	return true
}

// parseOperation takes a request that is an operation, with nothing beside it but an ID or a header. All
// else is not ok, and for protobuf to read.
func (d *decoded) parseOperation() (ok bool) {
	var id uint64
	header := false
	o := &d.operation
	ok = eachField(d.entry.Data, func(f boltfile.Field) bool {
		switch {
		case f.Number == fieldID && f.Kind == protowire.VarintType:
			id = f.Varint // the last one counts
			return true
		case f.Number == fieldHeader && f.Kind == protowire.BytesType:
			header = true
			return d.parseHeader(f.Bytes)
		case f.Kind != protowire.BytesType || o.kind != noOperation:
			return false
		case f.Number == fieldPut:
			return o.parsePut(f.Bytes)
		case f.Number == fieldDelete:
			return o.parseDelete(f.Bytes)
		case f.Number == fieldTxn:
			return o.parseTxn(f.Bytes, maxTxnDepth)
		}
		return false
	})
	return ok && (id != 0 || header) && o.kind != noOperation
}

func (d *decoded) parseHeader(data []byte) bool {
	return eachField(data, func(f boltfile.Field) bool {
		switch {
		case f.Number == headerUser && f.Kind == protowire.BytesType && utf8.Valid(f.Bytes):
			d.named = len(f.Bytes) > 0
			return true
		case f.Number == headerID || f.Number == headerAuthRevision:
			return f.Kind == protowire.VarintType
		}
		return false
	})
}

func (o *operation) parsePut(data []byte) bool {
	o.kind = putOperation
	return eachField(data, func(f boltfile.Field) bool {
		switch number := f.Kind == protowire.VarintType; {
		case f.Number == 1 && f.Kind == protowire.BytesType:
			o.key = f.Bytes
		case f.Number == 2 && f.Kind == protowire.BytesType:
			o.put.value = f.Bytes
		case f.Number == 3 && number:
			o.put.lease = int64(f.Varint)
		case f.Number == 4 && number: // the key's value before is for the answer
		case f.Number == 5 && number:
			o.put.ignoreValue = f.Varint != 0
		case f.Number == 6 && number:
			o.put.ignoreLease = f.Varint != 0
		default:
			return false
		}
		return true
	})
}

func (o *operation) parseDelete(data []byte) bool {
	o.kind = deleteOperation
	return eachField(data, func(f boltfile.Field) bool {
		switch {
		case f.Number == 1 && f.Kind == protowire.BytesType:
			o.key = f.Bytes
		case f.Number == 2 && f.Kind == protowire.BytesType:
			o.end = f.Bytes
		case f.Number == 3 && f.Kind == protowire.VarintType: // the keys before are for the answer
		default:
			return false
		}
		return true
	})
}

// parseRange takes what may have a transaction refused.
func (o *operation) parseRange(data []byte) bool {
	o.kind = rangeOperation
	return eachField(data, func(f boltfile.Field) bool {
		switch {
		case f.Number <= 2 && f.Kind == protowire.BytesType: // the keys
		case f.Number == 4 && f.Kind == protowire.VarintType:
			o.revision = int64(f.Varint)
		case f.Number >= 3 && f.Number <= 13 && f.Kind == protowire.VarintType:
		default:
			return false
		}
		return true
	})
}

func (o *operation) parseTxn(data []byte, depth int) bool {
	o.kind = txnOperation
	if o.txn == nil {
		o.txn = &transaction{}
	}
	t := o.txn
	return depth > 0 && eachField(data, func(f boltfile.Field) bool {
		if f.Kind != protowire.BytesType {
			return false
		}
		switch f.Number {
		case 1:
			t.compare = append(t.compare, comparison{})
			return t.compare[len(t.compare)-1].parse(f.Bytes)
		case 2:
			t.success = append(t.success, operation{})
			return t.success[len(t.success)-1].parse(f.Bytes, depth-1)
		case 3:
			t.failure = append(t.failure, operation{})
			return t.failure[len(t.failure)-1].parse(f.Bytes, depth-1)
		default:
			return false
		}
	})
}

// parse takes an operation in a transaction. There may be none in it.
func (o *operation) parse(data []byte, depth int) bool {
	return eachField(data, func(f boltfile.Field) bool {
		if f.Kind != protowire.BytesType || o.kind != noOperation {
			return false
		}
		switch f.Number {
		case 1:
			return o.parseRange(f.Bytes)
		case 2:
			return o.parsePut(f.Bytes)
		case 3:
			return o.parseDelete(f.Bytes)
		case 4:
			return o.parseTxn(f.Bytes, depth)
		default:
			return false
		}
	})
}

func (c *comparison) parse(data []byte) bool {
	// What is compared with is one of several fields, of which the last one counts, and
	// counts as 0 where it is another target's.
	var operand boltfile.Field
	ok := eachField(data, func(f boltfile.Field) bool {
		switch number := f.Kind == protowire.VarintType; {
		case f.Number == 1 && number && f.Varint <= uint64(pb.Compare_NOT_EQUAL):
			c.result = pb.Compare_CompareResult(f.Varint)
		case f.Number == 2 && number && f.Varint <= uint64(pb.Compare_LEASE):
			c.target = pb.Compare_CompareTarget(f.Varint)
		case f.Number == 3 && f.Kind == protowire.BytesType:
			c.key = f.Bytes
		case f.Number >= 4 && f.Number <= 8 && number == (f.Number != 7) && (number || f.Kind == protowire.BytesType):
			operand = f
		case f.Number == 64 && f.Kind == protowire.BytesType:
			c.end = f.Bytes
		default:
			return false
		}
		return true
	})
	if operand.Number == protowire.Number(c.target)+4 { // in the same order
		c.number, c.value = int64(operand.Varint), operand.Bytes
	}
	return ok
}
