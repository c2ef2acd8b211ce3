package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
)

// A job says why the command verified nothing, whatever the reason is. A backup that was
// pruned since it was chosen is no failure; one that never existed is.
func TestChildRefuses(t *testing.T) {
	dir := t.TempDir()
	session := termOn(t, onDisk(dir, "127.0.0.1:0", ""), memory())
	session.Program = storetest.Requorum(t)
	session.repo = newLibrary(t, t.TempDir()).repo
	const id = "20260101T000000Z-000000"
	expect := func(what string, one target, level report.Level, want string) {
		t.Helper()
		_, err := session.child(t.Context(), level, one)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "exit status") {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("no repository", target{backup: id}, report.Checksum, repository.ErrNoRepository.Error())
	l := newLibrary(t, dir)
	session.repo = l.repo
	expect("no such backup", target{backup: id}, report.Checksum, id)
	expect("no such level", target{backup: "latest"}, "ladder", "ladder")
	must(t, l.repo.RecordPruned(t.Context(), repository.Pruned{Timeline: timelineA, Backup: id, Reason: "test", Created: time.Now()}))
	if a, err := session.child(t.Context(), report.Checksum, target{backup: id}); err != nil || !strings.Contains(a.Text, "pruned") {
		t.Errorf("%+v, %v", a, err)
	}
}

// The command gets what the configuration says of the repository and its keys.
func TestVerifyArgs(t *testing.T) {
	cfg := parse(t, verifier)
	cfg.Repository = config.Repository{URL: "s3://b/p", LimitUpload: 512, LimitDownload: 1 << 20, SigningKeyFile: "/k", TrustFile: "/t", RevokedKeysFiles: []string{"/r1", "/r2"}}
	cfg.Encryption.IdentityFiles = []string{"/i1", "/i2"}
	cfg.Resources.ScratchDir = "/s"
	args := strings.Join((&session{cfg: cfg}).verifyArgs(report.Drill, target{"latest", "t-1"}), " ")
	want := "verify latest --output json --level drill --repo s3://b/p --scratch-dir /s --retry-for 0s --timeline t-1 --identity /i1 --identity /i2 --signing-key /k --trust /t --revoked-keys /r1 --revoked-keys /r2 --allow-rollback --limit-upload 512 --limit-download 1MiB"
	if args != want {
		t.Errorf("%s\nwant\n%s", args, want)
	}
}
