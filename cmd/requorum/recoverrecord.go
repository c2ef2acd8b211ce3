package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/rebuild"
	"github.com/requorum/requorum/walreplay"
)

// recoveryRecord is what a recovery without agents writes down before it changes
// anything, and removes when all is done: where it was killed, the same command goes
// on from it, though the survivors' own directories may be built over by then.
type recoveryRecord struct {
	Format int `json:"format"`
	// Asked tells whether a command is the same one: see asked.
	Asked     string               `json:"asked"`
	Began     time.Time            `json:"began"`
	Survivors []recovery.Survivor  `json:"survivors"`
	Target    walreplay.Target     `json:"target"`
	Decision  *recovery.Plan       `json:"decision"`
	Members   []recovery.NewMember `json:"members"`
	Compared  *rebuild.Comparison  `json:"cross_check,omitempty"`
	Plan      *restore.Plan        `json:"-"`
	Stored    json.RawMessage      `json:"plan"` // as restore.ParsePlan reads it
	path      string
}

const recoveryRecordFormat = 1

// recordPath is where the record lies: in the scratch folder that was asked for, or
// above the new data directories.
func (o *recoverOptions) recordPath() (string, error) {
	template, err := filepath.Abs(o.req.DataDir)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(template)
	for strings.Contains(dir, "{name}") {
		dir = filepath.Dir(dir)
	}
	rest, err := filepath.Rel(dir, template)
	if err != nil {
		return "", err
	}
	if o.point.scratchDir != "" {
		dir = o.point.scratchDir
	}
	name := strings.NewReplacer("{name}", "NAME", "/", "-").Replace(rest)
	if o.name != "" {
		name += "-of-" + o.name
	}
	return filepath.Join(dir, ".requorum-recover-"+name+".json"), nil
}

// asked is the same for two commands that ask for the same.
func (o *recoverOptions) asked() (string, error) {
	data, err := json.Marshal([]any{
		o.local, placeNames(o.repo.urls), o.source, o.declareDead, o.replace, o.members, o.point.asked(),
		o.req.InitialCluster, o.req.ClusterToken, o.learners, o.req.DataDir, o.req.WALDir, o.name, o.plan, o.bump, o.req.TargetVersion, o.req.Engine,
	})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// readRecord reads the record of a recovery that was not completed; nil where there
// is none.
func (o *recoverOptions) readRecord(asked string) (*recoveryRecord, error) {
	if o.toSnapshot != "" {
		return nil, nil
	}
	path, err := o.recordPath()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &recoveryRecord{path: path}
	if err := json.Unmarshal(data, r); err != nil || r.Format != recoveryRecordFormat || r.Decision == nil {
		return nil, fmt.Errorf("%s is the record of a recovery that was not completed, and cannot be read (%w): use the version of requorum that began it, or remove the file to begin anew", path, errors.Join(err, fmt.Errorf("format %d", r.Format)))
	}
	if r.Plan, err = restore.ParsePlan(r.Stored); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if begun, err := r.begun(); err != nil || !begun {
		return nil, err // nothing was changed: what was decided then binds nobody
	}
	if asked != r.Asked {
		return nil, usageError{fmt.Errorf("a recovery that was begun at %s from %s was not completed, and other options were given to it: give the same ones to go on, or remove %s to begin anew", when(r.Began), r.Decision.Chosen, path)}
	}
	return r, nil
}

// begun tells whether anything was changed since the record was written. Where
// nothing was, the survivors are as they were, or newer than what was decided.
func (r *recoveryRecord) begun() (bool, error) {
	for _, s := range r.Survivors {
		switch _, err := os.Lstat(filepath.Join(s.DataDir, "member")); {
		case errors.Is(err, fs.ErrNotExist):
			return true, nil // it may be on its way
		case err != nil:
			return false, err
		}
	}
	for _, m := range r.Plan.Members {
		begun, err := r.Plan.Begun(m)
		if err != nil {
			return false, fmt.Errorf("look how far plan %s got with %s: %w", r.Plan.ID, m.Name, err)
		}
		if begun {
			return true, nil
		}
	}
	return false, nil
}

// write makes the record durable, before anything is changed.
func (r *recoveryRecord) write() (err error) {
	if r.Stored, err = r.Plan.Marshal(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(r.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temporary := r.path + ".tmp"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write down what was decided, before anything is changed: %w: give --scratch-dir a folder that can be written to", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, r.path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// remove ends the record: all is done.
func (r *recoveryRecord) remove() error {
	return errors.Join(os.Remove(r.path), syncFolder(filepath.Dir(r.path)))
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
