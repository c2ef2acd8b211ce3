package walreplay

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/walfile"
)

// open goes through the log in a folder once.
func (m *member) open(ctx context.Context, dir string) error {
	log, err := walfile.Open(dir)
	if err != nil {
		return logDamage(err)
	}
	m.log = log
	s, err := log.Summary(ctx)
	var corrupt *walfile.CorruptError
	switch {
	case errors.As(err, &corrupt):
		m.damage = logDamage(corrupt)
	case err != nil:
		return errors.Join(logDamage(err), log.Close())
	}
	m.commit, m.memberID = s.Commit, snapshot.ID(s.Identity.MemberID)
	if s.Torn != nil {
		m.notes = append(m.notes, "the log ends with a record that was not written to its end, as a crash leaves it: that one was not acknowledged")
	}
	m.cut(s)
	m.bytes, err = sizeOf(dir)
	return err
}

// cut makes the parts of the log between its gaps.
func (m *member) cut(s walfile.Summary) {
	if s.FirstIndex == 0 {
		return
	}
	next := s.FirstIndex
	for _, g := range s.Gaps {
		if g.After >= next {
			m.parts = append(m.parts, stretch{First: next, Last: g.After})
		}
		next = g.Next
	}
	if next <= s.LastIndex {
		m.parts = append(m.parts, stretch{First: next, Last: s.LastIndex})
	}
}

// damageAt is the damage that ends the log; what lies behind it is not known.
func (m *member) damageAt(_, last uint64) error {
	if n := len(m.parts); m.damage == nil || n > 0 && last <= m.parts[n-1].Last {
		return nil
	}
	return m.damage
}

// size is the range's part of all files: entries are taken to be alike.
func (m *member) size(first, last uint64) int64 {
	if len(m.parts) == 0 || last < first {
		return 0
	}
	all := m.parts[len(m.parts)-1].Last - m.parts[0].First + 1
	return int64(float64(m.bytes) * min(1, float64(last-first+1)/float64(all)))
}

// sizeOf is the size of a log's files, as far as they are written.
func sizeOf(dir string) (int64, error) {
	names, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.wal"))
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}

// logDamage makes what a member's log says of damage what all of requorum says.
func logDamage(err error) error {
	var corrupt *walfile.CorruptError
	if !errors.As(err, &corrupt) {
		return err
	}
	return &snapshot.DamagedError{Object: filepath.Join(corrupt.Dir, corrupt.Segment), Offset: corrupt.Offset, Err: corrupt.Err}
}
