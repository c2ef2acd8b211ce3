package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/config"
)

// askedHost is what a control process said, or why it said nothing.
type askedHost struct {
	*protocol.Member
	err error
}

// askPatience bounds a question to a control process.
const askPatience = 20 * time.Second

// askHosts asks all control processes how their members are, at once.
func askHosts(ctx context.Context, k *knownFlags, hosts []config.Host) []askedHost {
	ctx, cancel := context.WithTimeoutCause(ctx, askPatience, errors.New("no answer within "+askPatience.String()))
	defer cancel()
	answers := make([]askedHost, len(hosts))
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() {
			c, err := client.New(client.Options{Address: h.Control, Member: h.Member, Run: "requorum-asks", CA: k.ca, Cert: k.cert, Key: k.key})
			if err != nil {
				answers[i].err = err
				return
			}
			defer c.Close()
			answers[i].Member, answers[i].err = c.Member(ctx, false)
		})
	}
	all.Wait()
	return answers
}

// clusterOfHosts is the ID of the cluster whose data lies on the hosts.
func (g *globals) clusterOfHosts(ctx context.Context, o *recoverOptions, hosts []config.Host) (string, error) {
	var ids, silent []string
	for i, a := range askHosts(ctx, &o.known, hosts) {
		switch {
		case a.err != nil:
			silent = append(silent, fmt.Sprintf("%s: %v", hosts[i].Member, a.err))
		case a.Cluster == "":
			silent = append(silent, hosts[i].Member+": there is no log of a member on its host")
		case !slices.Contains(ids, a.Cluster):
			ids = append(ids, a.Cluster)
		}
	}
	slices.Sort(ids)
	switch len(ids) {
	case 1:
		return ids[0], nil
	case 0:
		return "", usageError{fmt.Errorf("which cluster this is cannot be told: give --cluster NAME, always the same for it:\n  %s", strings.Join(silent, "\n  "))}
	}
	return "", usageError{fmt.Errorf("the hosts have data of %d clusters (%s): look at the addresses, or call them one with --cluster NAME", len(ids), strings.Join(ids, ", "))}
}
