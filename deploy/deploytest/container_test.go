package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// image makes what the Containerfile puts into the image.
func image(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	data, err := os.ReadFile(storetest.Requorum(t))
	require.NoError(t, err)
	for _, dir := range []string{"etc/ssl/certs", "var/lib/requorum", "tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o777))
	}
	for _, dir := range []string{"", "tmp", "var/lib/requorum"} {
		require.NoError(t, os.Chmod(filepath.Join(root, dir), 0o777))
	}
	require.NoError(t, storetest.WriteProgram(filepath.Join(root, "requorum"), data, 0o755))
	// What every engine adds.
	write(t, filepath.Join(root, "etc/hosts"), "127.0.0.1 localhost\n")
	return root
}

var userOf = regexp.MustCompile(`(?m)^USER (\d+:\d+)$`)

// inside is the beginning of a command line that runs in the image as its user.
func inside(t *testing.T, root string) []string {
	t.Helper()
	needs(t, os.Getuid() == 0, "chroot takes root")
	_, err := exec.LookPath("chroot")
	needs(t, err == nil, "there is no chroot")
	found := userOf.FindStringSubmatch(deployed(t, "container", "Containerfile"))
	if found == nil || strings.HasPrefix(found[1], "0:") {
		t.Fatal("the Containerfile names no user by number, or root")
	}
	return []string{"chroot", "--userspec=" + found[1], "--groups=", root, "/requorum"}
}

// The binary runs in a root folder with nothing that a distribution has, as the
// image's user: it knows time zones, resolves names, and takes the authorities that
// the image brings for a server's certificate.
func TestImage(t *testing.T) {
	t.Parallel()
	root := image(t)
	in := inside(t, root)
	must(t, nil, in[0], append(in[1:], "version")...)

	write(t, filepath.Join(root, "agent.yaml"), "name: a\ntime-zone: Asia/Kathmandu\nrepository: {url: 'file:///tmp/repo'}\njobs: {full: {run: off}, divergence: {run: off}}\n")
	must(t, nil, in[0], append(in[1:], "agent", "--config", "/agent.yaml", "--check-config")...)

	c := storetest.Start(t, storetest.Options{Version: "3.7"})
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{TLS: true, Buckets: []sinktest.S3Bucket{{Name: "plain"}}})
	url := strings.Replace(withoutCA(server.URL("plain", "p")), "127.0.0.1", "localhost", 1)
	backup := slices.Concat(in[1:], []string{"backup", "--endpoints", c.Endpoints()[0], "--repo", url, "--retry-for", "1s"})
	env := []string{"AWS_ACCESS_KEY_ID=" + server.AccessKey, "AWS_SECRET_ACCESS_KEY=" + server.SecretKey, "STATE_DIRECTORY=/var/lib/requorum"}
	if e := run(t, env, in[0], backup...); e.code != 1 || !strings.Contains(e.text, "certificate is not trusted") {
		t.Fatalf("without authorities: exit code %d\n%s", e.code, e.text)
	}
	authority, err := os.ReadFile(server.CAFile)
	require.NoError(t, err)
	write(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"), string(authority))
	must(t, env, in[0], backup...)
}

var parameterCA = regexp.MustCompile(`[&]?ca=[^&]*`)

func withoutCA(url string) string { return parameterCA.ReplaceAllString(url, "") }

// The Containerfile makes what image makes: what the test cannot see in it, since no
// engine is here to build it.
func TestContainerfile(t *testing.T) {
	text := deployed(t, "container", "Containerfile")
	for _, want := range []string{
		"\nFROM scratch\n", "make build ", " .cache/bin/requorum /image/requorum",
		"ca-certificates.crt /image/etc/ssl/certs/", "COPY --from=build /image/ /\n", `ENTRYPOINT ["/requorum"]`, "ENV STATE_DIRECTORY=/var/lib/requorum",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q", want)
		}
	}
	mod, err := os.ReadFile(filepath.Join(top, "go.mod"))
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))
	if version == nil || !strings.Contains(text, "golang:"+version[1]+"@sha256:") || !strings.Contains(text, "Go "+version[1]+" or newer") {
		t.Errorf("go.mod wants %v", version)
	}
	// What builds is named by who builds, by its digest.
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1) {
		if from[1] != "scratch" && from[1] != "${GO_IMAGE}" {
			t.Errorf("FROM %s is not named by digest", from[1])
		}
	}
	if !strings.Contains(text, "\nARG GO_IMAGE\n") {
		t.Error("GO_IMAGE has a default")
	}
	// The time zones that a scratch image does not have.
	_, err = time.LoadLocation("Asia/Kathmandu")
	require.NoError(t, err)
}
