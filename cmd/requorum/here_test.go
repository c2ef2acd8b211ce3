package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.M{M: m}.Run()) }

// ended is how a command ended.
type ended struct {
	args           []string
	code           int
	stdout, stderr string
}

func (e ended) String() string {
	return fmt.Sprintf("requorum %s: exit code %d\n%s%s", strings.Join(e.args, " "), e.code, e.stdout, e.stderr)
}

// runHere runs a command line in this process.
func runHere(ctx context.Context, args ...string) ended {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, environment{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, getenv: func(string) string { return "" }})
	return ended{args: args, code: code, stdout: stdout.String(), stderr: stderr.String()}
}
