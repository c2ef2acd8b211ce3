package verdict

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
)

const (
	// partSize is how many bytes of subjects go into one object: far below what
	// readers take, so that indentation and the rest fit as well.
	partSize = 1 << 20
	// maxTries bounds the competition for a number. Each lost try is another
	// writer's success, so that many say that something else is wrong.
	maxTries = 1000
)

// Write appends a verdict to the repository's chain and returns it as it was
// stored; of one that takes several parts the last. Several may write at once:
// the conditional put of the next number decides, and who loses goes on behind
// the winner. Where the sink has no exclusive create (see sinks.Abilities) only
// one may write at a time. Key may be nil: the verdict is not signed then.
func Write(ctx context.Context, repo *repository.Repository, v Verdict, key ed25519.PrivateKey) (Verdict, error) {
	if v.Host == "" {
		v.Host, _ = os.Hostname() // a host without a name has none to tell
	}
	v.Format, v.Kind, v.Repository = format, Kind, repo.ID()
	v.Started, v.Finished = v.Started.UTC().Round(0), v.Finished.UTC().Round(0)
	parts, err := split(v.Subjects)
	if err != nil {
		return Verdict{}, err
	}
	tail := &tail{repo: repo}
	if err := tail.find(ctx); err != nil {
		return Verdict{}, err
	}
	for i, part := range parts {
		v.Subjects, v.ID = part, newID()
		if len(parts) > 1 {
			v.Part, v.Parts = i+1, len(parts)
		}
		if v, err = tail.append(ctx, v, key); err != nil {
			return Verdict{}, fmt.Errorf("write the verdict into %s: %w", repo, err)
		}
	}
	return v, nil
}

func newID() string {
	var id [16]byte
	rand.Read(id[:]) // never fails, by its documentation
	return hex.EncodeToString(id[:])
}

// split cuts subjects into parts that fit into an object each; one part at
// least.
func split(all []Subject) ([][]Subject, error) {
	parts, size := [][]Subject{{}}, 0
	for _, s := range all {
		data, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("encode a verdict: %w", err)
		}
		if last := parts[len(parts)-1]; size+len(data) > partSize && len(last) > 0 {
			parts, size = append(parts, []Subject{}), 0
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], s)
		size += len(data)
	}
	return parts, nil
}

// tail is the end of the chain, as far as one writer knows.
type tail struct {
	repo     *repository.Repository
	sequence uint64 // of the newest verdict; 0: none
	sum      Sum    // of its bytes
}

// find looks for the newest verdict.
func (t *tail) find(ctx context.Context) error {
	for range maxTries {
		all, err := t.repo.Verdicts(ctx)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return nil
		}
		t.sequence = all[len(all)-1].Sequence
		err = t.read(ctx)
		if errors.Is(err, sinks.ErrNotFound) {
			continue // pruned since it was listed
		}
		return err
	}
	return fmt.Errorf("%s in %s is listed, but cannot be read: look for a delete marker, or a right that is missing", repository.VerdictName(t.sequence), t.repo)
}

// read hashes the newest verdict, whatever is in it: a damaged one, or one of a
// newer version, keeps nobody from going on.
func (t *tail) read(ctx context.Context) error {
	name := repository.VerdictName(t.sequence)
	r, err := t.repo.Sink().Open(ctx, name, 0, -1)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(h, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("read %s in %s: %w", name, t.repo, err)
	}
	h.Sum(t.sum[:0])
	return nil
}

// append writes v behind the newest verdict.
func (t *tail) append(ctx context.Context, v Verdict, key ed25519.PrivateKey) (Verdict, error) {
	for range maxTries {
		if t.sequence == math.MaxUint64 {
			return Verdict{}, fmt.Errorf("%s is there, and no number comes after it: nothing but a stray object can have it; remove that", repository.VerdictName(t.sequence))
		}
		v.Sequence, v.Previous = t.sequence+1, t.sum
		data, err := encode(v, key)
		if err != nil {
			return Verdict{}, err
		}
		name := repository.VerdictName(v.Sequence)
		_, err = sinks.Put(ctx, t.repo.Sink(), name, data, sinks.CreateOptions{Lock: true, ContentType: "application/json"})
		if err != nil && !errors.Is(err, sinks.ErrExists) && !errors.Is(err, sinks.ErrUncertain) {
			return Verdict{}, err
		}
		ours := err == nil
		if !ours {
			// An answer that was lost may have been a success: what is there tells.
			stored, errRead := sinks.Get(ctx, t.repo.Sink(), name, repository.VerdictLimit)
			if errRead != nil {
				return Verdict{}, errors.Join(err, errRead)
			}
			ours = bytes.Equal(stored, data)
			data = stored
		}
		t.sequence, t.sum = v.Sequence, sha256.Sum256(data)
		if ours {
			return v, nil
		}
	}
	return Verdict{}, fmt.Errorf("%d other verdicts were written meanwhile: something writes them without end", maxTries)
}
