package recovery

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/verify/replaying"
)

// The tests wait for elections of real servers more than they compute, so more of
// them run at once than there are processors.
func TestMain(m *testing.M) {
	if os.Getenv("REQUORUM_TEST_HOST") != "" { // a host process
		signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
		if err := host.Serve(context.Background(), os.Stdin, os.Stdout, host.Options{Version: "test", CheckBase: replaying.CheckBase}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "7"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
