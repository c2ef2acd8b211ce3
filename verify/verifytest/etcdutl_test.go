package verifytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
)

// etcdutlArgument makes the test binary do what etcdutl does: it may panic, or
// end its process.
const etcdutlArgument = "etcdutl-of-a-test"

const (
	statusCommand = "status"
	hashCommand   = "hashkv"
)

// etcdutlTimeout is for what etcd's store waits for without end.
const etcdutlTimeout = 10 * time.Second

// asked is what the two commands say, a line for each.
type asked struct {
	Command string
	Error   string
	Hash    mvcc.KeyValueHash
}

// askEtcdutl runs `etcdutl snapshot status` and `etcdutl hashkv` on a database,
// through the functions that these call.
func askEtcdutl(path string, commands []string) {
	for _, command := range commands {
		a := asked{Command: command}
		var err error
		if command == statusCommand {
			_, err = snapshot.NewV3(zap.NewNop()).Status(path)
		} else {
			a.Hash, err = hashOf(path)
		}
		if err != nil {
			a.Error = err.Error()
		}
		line, err := json.Marshal(a)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintf(os.Stdout, "%s\n", line)
	}
}

// hashOf does what etcdutl's hashkv does.
func hashOf(path string) (mvcc.KeyValueHash, error) {
	b := backend.NewDefaultBackend(zap.NewNop(), path)
	defer b.Close()
	st := mvcc.NewStore(zap.NewNop(), b, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer st.Close()
	h, _, err := mvcc.NewHashStorage(zap.NewNop(), st).HashByRev(0)
	return h, err
}

// etcdutlFinds tells what the two commands make of a backup's database, as `zstd
// -d` gives it: a command finds a fault where it fails or never ends; hashkv also where its hash
// is another one than the manifest has.
func etcdutlFinds(t testing.TB, r *Repo, i int) (status, hash bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	must(t, os.WriteFile(path, r.Database(t, i), 0o600))
	self, err := os.Executable()
	must(t, err)
	found := map[string]bool{}
	for commands := []string{statusCommand, hashCommand}; len(commands) > 0; {
		var stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), etcdutlTimeout)
		cmd := exec.CommandContext(ctx, self, append([]string{etcdutlArgument, path}, commands...)...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		cancel()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			var a asked
			must(t, json.Unmarshal([]byte(line), &a))
			want := r.Manifest(t, i).HashKV
			found[a.Command] = a.Error != "" || a.Command == hashCommand && a.Hash.Hash != want.Hash
			commands = slices.DeleteFunc(commands, func(c string) bool { return c == a.Command })
		}
		if len(commands) > 0 { // it ended within this one
			if err == nil {
				t.Fatalf("no answer of %s: %s%s", commands[0], out, stderr.String())
			}
			found[commands[0]] = true
			commands = commands[1:]
		}
	}
	return found[statusCommand], found[hashCommand]
}
