package restore

import (
	"errors"
	"fmt"
	"path/filepath"
)

// target is a member on this host, with the directories it goes to.
type target struct {
	Member
	data *site
	wal  *site // nil without a separate WAL directory

	state memberState // what lies in place
	aside []string    // what was set aside, for the result
}

// built is where the member folder lies until it is published, and builtWAL
// where etcd's WAL code writes the log.
func (t *target) built() string { return filepath.Join(t.data.staging(), "member") }

func (t *target) builtWAL() string {
	if t.wal != nil {
		return filepath.Join(t.wal.staging(), "wal")
	}
	return filepath.Join(t.built(), "wal")
}

// live is the member folder where etcd looks for it.
func (t *target) live() string { return filepath.Join(t.data.final, "member") }

// openTargets locks the directories of all members.
func openTargets(members []Member) (ts []*target, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closeTargets(ts, false))
			ts = nil
		}
	}()
	for _, m := range members {
		t := &target{Member: m}
		ts = append(ts, t)
		if t.data, err = openSite(m.DataDir); err != nil {
			return ts, fmt.Errorf("data directory of member %s: %w", m.Name, err)
		}
		if m.WALDir == "" {
			continue
		}
		if t.wal, err = openSite(m.WALDir); err != nil {
			return ts, fmt.Errorf("WAL directory of member %s: %w", m.Name, err)
		}
	}
	return ts, nil
}

// survey looks at what lies in place.
func (t *target) survey() (err error) {
	t.state, _, err = memberStateOf(t.live())
	if err != nil {
		return fmt.Errorf("data directory of member %s: %w", t.Name, err)
	}
	return nil
}

func (t *target) sites() []*site {
	if t.wal == nil {
		return []*site{t.data}
	}
	return []*site{t.data, t.wal}
}

// closeTargets ends a run: see site.close. Parents go last, as several members
// may share one.
func closeTargets(ts []*target, clean bool) error {
	var errs []error
	for _, t := range ts {
		for _, s := range t.sites() {
			if s != nil {
				errs = append(errs, s.close(clean))
			}
		}
	}
	for i := len(ts) - 1; i >= 0; i-- {
		for _, s := range ts[i].sites() {
			if s != nil {
				s.unmake()
			}
		}
	}
	return errors.Join(errs...)
}
