package recovertest

import (
	"os"
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

// TestMain removes the binary after the tests.
func TestMain(m *testing.M) { os.Exit(storetest.M{M: m}.Run()) }
