package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/requorum/requorum/store/storetest"
)

// Promise 5: what the writer cannot write ends the replay with the next commit at
// the latest. It is no fault of the entry then, and the engine says what the file
// holds.
func TestPromise5WriterFails(t *testing.T) {
	entries := generate(t, 21, 900)
	for name, noticed := range map[string]func(e *Engine) error{
		"by a commit": func(e *Engine) error { return e.Commit() },
		"by the next commit of its own": func(e *Engine) error {
			e.direct.pending = maxPending + 1
			_ = e.Apply(entries[600]) // begins it
			e.direct.pending = maxPending + 1
			return e.Apply(entries[601])
		},
		"by a read": func(e *Engine) error {
			directTx{e.direct}.UnsafeRange(schema.Key, []byte{0}, nil, 0)
			return e.Apply(entries[600])
		},
		"by Close": func(e *Engine) error { return e.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			path := empty(t)
			e := open(t, path, Options{})
			applyAll(t, e, entries[:300])
			require.NoError(t, e.Commit())
			revision := e.Revision()
			applyAll(t, e, entries[300:600])
			e.direct.writer.change(row{bucket: schema.Lease}) // bolt wants a key
			err := noticed(e)
			var entry *EntryError
			if !errors.Is(err, bolterrors.ErrKeyRequired) || errors.As(err, &entry) {
				t.Errorf("error %v", err)
			}
			if index, _ := e.Applied(); index != 300 || e.Revision() != revision {
				t.Errorf("the engine is at %d, revision %d; want 300, %d", index, e.Revision(), revision)
			}
			if err := e.Apply(entries[600]); err == nil {
				t.Error("an entry was applied after that")
			}
			_ = e.Close()
			expectEqual(t, storetest.ReadContents(t, path), replayed(t, empty(t), Options{}, entries[:300]))
		})
	}
}

// A commit goes on while entries are applied, and Rollback comes back to it.
func TestRollbackDuringACommit(t *testing.T) {
	entries := generate(t, 22, 600)
	path := empty(t)
	e := open(t, path, Options{})
	applyAll(t, e, entries[:300])
	e.direct.pending = maxPending + 1
	applyAll(t, e, entries[300:])
	if e.committing == nil {
		t.Fatal("no commit was begun")
	}
	require.NoError(t, e.Rollback())
	if index, _ := e.Applied(); index < 300 {
		t.Errorf("rolled back to index %d, behind a commit at 300", index)
	}
	index, _ := e.Applied()
	require.NoError(t, e.Close())
	expectEqual(t, storetest.ReadContents(t, path), replayed(t, empty(t), Options{}, entries[:index]))
}
