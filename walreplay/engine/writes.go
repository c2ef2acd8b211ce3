package engine

import "github.com/requorum/requorum/walreplay/raftlog"

// Writes calls see with each key that an entry asks to put or to delete: the first one of a
// range, and of a transaction those of its success. see must not keep the key.
func Writes(e raftlog.Entry, see func(key []byte)) {
	decode(e).operation.writes(see)
}

func (o *operation) writes(see func(key []byte)) {
	switch o.kind {
	case putOperation, deleteOperation:
		see(o.key)
	case txnOperation:
		for i := range o.txn.success {
			o.txn.success[i].writes(see)
		}
	case noOperation, rangeOperation:
	}
}
