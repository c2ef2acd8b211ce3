package recovertest

import (
	"flag"
	"os"
	"testing"

	"github.com/requorum/requorum/cmd/requorum/binarytest"
)

// TestMain runs several tests side by side, because they mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err) // there is no such flag any more
	}
	os.Exit(binarytest.M{M: m}.Run())
}
