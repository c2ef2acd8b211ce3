package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/rescue"
	"github.com/requorum/requorum/schedule/rescue/config"
	"github.com/requorum/requorum/sinks/place"
)

// known is what a recovery without a cluster file is about. It is kept in the state
// folder, so that the same command goes on: half-way, repositories know another
// cluster than before, and hosts another one or none.
type known struct {
	Cluster   string        `json:"cluster"`
	Hosts     []config.Host `json:"hosts"`
	Endpoints []string      `json:"endpoints,omitempty"`
	Given     given         `json:"given"`
	Time      time.Time     `json:"time"`
}

// given are the options that say which cluster is meant: what makes a command the
// same one.
type given struct {
	Cluster      string   `json:"cluster,omitempty"`
	Control      []string `json:"control,omitempty"`
	Port         int      `json:"control_port"`
	Repositories []string `json:"repositories,omitempty"`
}

// givenHere are those of this command; repositories have the one URL of their place.
func (o *recoverOptions) givenHere() (given, error) {
	s := given{Cluster: o.known.cluster, Port: o.known.port}
	s.Control = slices.Sorted(slices.Values(o.known.control))
	for _, u := range o.repo.urls {
		if err := place.Check(u); err != nil {
			return s, usageError{fmt.Errorf("--repo: %w", err)}
		}
	}
	s.Repositories = placeNames(o.repo.urls)
	if s.Cluster != "" && !plainName.MatchString(s.Cluster) {
		return s, usageError{fmt.Errorf("--cluster %s: want letters, digits, dots, underscores and hyphens", s.Cluster)}
	}
	return s, nil
}

// knownFile is its name in the state folder.
const knownFile = "known.json"

// stateBase is where state folders are, one for each cluster, whatever folder the
// operator works in.
func stateBase(getenv func(string) string) (string, error) {
	for _, dir := range []string{getenv("XDG_STATE_HOME"), filepath.Join(getenv("HOME"), ".local", "state")} {
		if filepath.IsAbs(dir) {
			return filepath.Join(dir, "requorum", recoverCommand), nil
		}
	}
	return "", usageError{errors.New("no folder for the state of a recovery is known: set HOME or XDG_STATE_HOME, or give a cluster file with --config, which has state-dir")}
}

// folderOf is the state folder's name: the cluster's.
func folderOf(cluster string) string {
	if plainName.MatchString(cluster) {
		return cluster
	}
	sum := sha256.Sum256([]byte(cluster))
	return fmt.Sprintf("cluster-%x", sum[:6])
}

// findKept gives what the newest recovery by the same options was about, where it is
// under way, or is to be taken back; nil where there is none.
func findKept(base string, g given, undo bool) (*known, error) {
	paths, err := filepath.Glob(filepath.Join(base, "*", knownFile))
	if err != nil {
		return nil, err
	}
	var newest *known
	dir := ""
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var k known
		if err := json.Unmarshal(data, &k); err != nil {
			return nil, fmt.Errorf("what a recovery was about: %s: %w", path, err)
		}
		k.Given.Repositories = placeNames(k.Given.Repositories)
		if reflect.DeepEqual(k.Given, g) && (newest == nil || k.Time.After(newest.Time)) {
			newest, dir = &k, filepath.Dir(path)
		}
	}
	if newest == nil || undo {
		return newest, nil
	}
	goesOn, err := rescue.UnderWay(dir)
	if err != nil || !goesOn {
		return nil, err
	}
	return newest, nil
}

// keep writes it down before anything is begun.
func (k *known) keep(dir string) error {
	k.Time = time.Now().UTC()
	data, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the state folder: %w", err)
	}
	path := filepath.Join(dir, knownFile)
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("the state folder: %w", err)
	}
	if err := errors.Join(syncPath(path+".new"), os.Rename(path+".new", path), syncPath(dir)); err != nil {
		return fmt.Errorf("the state folder: %w", err)
	}
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeNew writes a file that must not be there yet, whole and durably.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usageError{fmt.Errorf("%s is there already, and is not overwritten: name another file, or move it away", path)}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return syncPath(filepath.Dir(path))
}
