package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/store/client"
)

func TestDoctorVersions(t *testing.T) {
	for version, want := range map[string]string{
		"3.3.27": checkProblem, "3.4.0": checkProblem, "3.5.35": checkOK, "3.7.3-rc.1": checkOK, "3.8.0": checkProblem, "4.0.0": checkProblem, "": checkProblem,
	} {
		var e examination
		e.checkVersion(client.MemberStatus{Version: version})
		if got := e.report.Checks[0].Status; got != want {
			t.Errorf("%q: %s, want %s", version, got, want)
		}
	}
}

// What lies in the folders that are looked at may be anything: nobody waits for the other
// end of a pipe.
func TestDoctorOpensNoPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "db")
	require.NoError(t, errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(filepath.Join(dir, "key"), nil, 0o600)))
	for name, examine := range map[string]func(*examination){
		checkProblem: func(e *examination) { e.result("database", readable(pipe), "", "") },
		checkOK:      func(e *examination) { e.checkAttachments(t.Context()) },
	} {
		e := examination{agent: &config.Config{Attachments: []string{dir}}}
		done := make(chan bool)
		go func() {
			examine(&e)
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("%s: it waits", name)
			f, err := os.OpenFile(pipe, os.O_RDWR, 0) // which lets it go on
			require.NoError(t, err)
			<-done
			f.Close()
			continue
		}
		if len(e.report.Checks) != 1 || e.report.Checks[0].Status != name {
			t.Errorf("want %s: %+v", name, e.report.Checks)
		}
	}
}
