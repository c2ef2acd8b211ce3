package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/requorum/requorum/store"
)

// MembersCommand is the argument with which a drill starts this program anew,
// to call Members.
const MembersCommand = "drill-members"

// membersVariable is set for the process that runs the members, so that one
// which does not know MembersCommand cannot begin drills without end.
const membersVariable = "REQUORUM_DRILL_MEMBERS"

// order is what a drill asks its process for, in one line of JSON.
type order struct {
	Members        []orderedMember `json:"members"`
	InitialCluster string          `json:"initial_cluster"`
	Token          string          `json:"token"`
	BootTimeout    time.Duration   `json:"boot_timeout"`
}

type orderedMember struct {
	Name, DataDir, PeerURL, ClientURL string
}

// answer is what that process says, in a line of JSON each.
type answer struct {
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
	// Late says that the time to boot was over.
	Late bool `json:"late,omitempty"`
}

// Members runs the members that a drill orders on in, says on out how it goes,
// and returns when in ends, which is when the drill is over or dead. The caller
// then ends the process, and with it the members: what they would still write,
// nobody reads.
func Members(ctx context.Context, in io.Reader, out io.Writer) error {
	// If memory runs out, this process is the one to end. Only Linux knows that,
	// and elsewhere nothing is lost.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders := json.NewDecoder(in)
	var o order
	if err := orders.Decode(&o); err != nil {
		return fmt.Errorf("drill: read what to start: %w: only 'requorum verify --rung drill' starts this", err)
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, io.MultiReader(orders.Buffered(), in)) // however it ends, the drill is over
	}()
	answers := json.NewEncoder(out)
	starting, stop := context.WithTimeout(ctx, o.BootTimeout)
	defer stop()
	cluster, err := store.StartMembers(starting, o.configs())
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		late := errors.Is(starting.Err(), context.DeadlineExceeded)
		return answers.Encode(answer{Error: err.Error(), Late: late})
	}
	if err := answers.Encode(answer{Ready: true}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-cluster.Err():
		return answers.Encode(answer{Error: fmt.Sprint(err)})
	}
}

func (o order) configs() []store.MemberConfig {
	var configs []store.MemberConfig
	for _, m := range o.Members {
		configs = append(configs, store.MemberConfig{
			Name: m.Name, DataDir: m.DataDir,
			ListenPeerURLs: []string{m.PeerURL}, ListenClientURLs: []string{m.ClientURL},
			InitialCluster: o.InitialCluster, InitialClusterState: "existing",
			Settings: store.Settings{
				Token: o.Token,
				// Whatever the image's size, writes are to go through.
				QuotaBytes: -1,
				LogLevel:   "warn", LogOutputs: []string{"stderr"},
			},
		})
	}
	return configs
}
