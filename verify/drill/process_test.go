package drill

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The process that reads a strange database does not get this one's secrets.
func TestMembersGetNoSecrets(t *testing.T) {
	for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "REQUORUM_PASSPHRASE", "HTTPS_PROXY"} {
		t.Setenv(name, "hunter2")
	}
	path := filepath.Join(t.TempDir(), "environment")
	lock, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	p, err := launch([]string{"/bin/sh", "-c", `env >"$0"`, path}, lock)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.order(t.Context(), order{}); err == nil {
		t.Error("a shell gave an answer")
	}
	<-p.gone
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(got); strings.Contains(text, "hunter2") || !strings.Contains(text, membersVariable+"=1") || !strings.Contains(text, "PATH=") {
		t.Errorf("the members' environment:\n%s", text)
	}
}
