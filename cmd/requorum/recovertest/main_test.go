package recovertest

import (
	"os"
	"testing"

	"github.com/requorum/requorum/cmd/requorum/binarytest"
)

// TestMain removes the binary after the tests.
func TestMain(m *testing.M) { os.Exit(binarytest.M{M: m}.Run()) }
