package restore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/safedir"
)

// checkFile looks, without changing anything, whether the file could be written.
func (p *Plan) checkFile() ([]FileSystem, error) {
	there, err := exists(p.Path)
	if err == nil && there {
		err = fmt.Errorf("%s %w: name another file", p.Path, ErrExists)
	}
	if err != nil {
		return nil, err
	}
	if err := checkInside(p.Path); err != nil {
		return nil, err
	}
	folder := filepath.Dir(p.Path)
	there, err = directory(folder)
	if err == nil && !there {
		err = fmt.Errorf("there is no folder %s: make it, or name a file in another one", folder)
	}
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", p.Path, err)
	}
	if err := writable(folder, true); err != nil {
		return nil, err
	}
	systems, err := fileSystems(map[string]int64{p.Path: p.Bytes})
	for _, f := range systems {
		err = errors.Join(err, f.check())
	}
	return systems, err
}

// writeFile writes the planned file.
func (r *run) writeFile(ctx context.Context) (_ *Result, err error) {
	p := r.plan
	done := r.phase(PhaseCheck)
	if err := p.Source.check(ctx, r.image, p.ID); err != nil {
		return nil, err
	}
	if _, err := p.checkFile(); err != nil {
		return nil, err
	}
	s, err := openSite(p.Path)
	if err != nil {
		return nil, errors.Join(err, s.close(false))
	}
	defer func() { err = errors.Join(err, s.close(true)) }()
	if err := s.sweep(); err != nil {
		return nil, err
	}
	done()

	aside := filepath.Join(s.staging(), "db")
	if err := r.writeDatabases(ctx, []string{aside}); err != nil {
		return nil, err
	}
	done = r.phase(PhaseEdit)
	out, err := edit{bump: p.Bump, authOff: p.AuthOff}.apply(aside)
	if err != nil {
		return nil, editError(r.image, err)
	}
	if err := out.compare(r.image, p.Source.Facts); err != nil {
		return nil, err
	}
	done()
	done = r.phase(PhaseSync)
	sum, size, err := appendSum(ctx, aside)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", p.Path, err)
	}
	if err := (traits{owner: p.Owner, fileMode: 0o600}).apply(aside); err != nil {
		return nil, err
	}
	done()
	done = r.phase(PhasePublish)
	r.opts.step("publish " + p.Path)
	if err := publishFile(aside, p.Path); err != nil {
		return nil, err
	}
	done()
	r.downgrade = out.downgrade
	res := r.result()
	res.Path, res.Size, res.DatabaseSHA256 = p.Path, size, sum
	return res, nil
}

// appendSum puts the SHA-256 of a database behind it, as etcd's own snapshots
// have it, and syncs the file. The size is the new one.
func appendSum(ctx context.Context, path string) (sum string, size int64, err error) {
	f, err := safedir.OpenWritable(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	size, err = io.CopyBuffer(struct{ io.Writer }{h}, snapshot.ReaderUntil(ctx, f), make([]byte, chunkSize))
	if err != nil {
		return "", 0, err
	}
	if size%512 != 0 { // etcdutl knows a trailer by the size
		return "", 0, fmt.Errorf("%d bytes are no whole pages", size)
	}
	n, err := f.Write(h.Sum(nil))
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size + int64(n), f.Sync()
}

// publishFile gives a file its name, in one step, and fails where that is
// taken. Where a rename cannot promise that, a hard link does.
func publishFile(from, to string) error {
	err := safedir.RenameNew(from, to)
	if errors.Is(err, safedir.ErrNoExchange) {
		err = safedir.Link(from, to)
	}
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s %w: name another file", to, ErrExists)
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", to, err)
	}
	return safedir.Sync(filepath.Dir(to))
}

// randomID is 16 hexadecimal digits.
func randomID() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails: it ends the process instead
	return hex.EncodeToString(b)
}
