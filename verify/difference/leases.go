package difference

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/verify/report"
)

// mostMinTTL is the most that a cluster raises a short lease to, in seconds: 1.5
// times etcd's longest election timeout.
const mostMinTTL = 75

// leaseTimes is what is known of leases whose granted times differ. A cluster
// raises short leases to a minimum that follows from its members' election
// timeout, which the log does not tell. All that were raised then have that
// minimum on one side, and no lease of that side has less.
type leaseTimes struct {
	longer   [2]int64 // how many are longer on this side
	value    [2]int64 // what the first of them has there
	several  bool     // they have several values there
	least    [2]int64 // the shortest of all leases of a side
	findings []report.Finding
	count    int64
}

// lease compares a row of bucket lease.
func (c *comparison) lease(p pair) {
	where := "bucket lease, " + leaseName(p.key)
	var leases [2]leasepb.Lease
	for i := range leases {
		if !p.in[i] {
			continue
		}
		if err := proto.Unmarshal(p.values[i], &leases[i]); err != nil {
			if !bytes.Equal(p.values[0], p.values[1]) {
				c.found(where, fmt.Sprintf("the row of %s cannot be decoded, and %s", c.sides[i].Name, c.how(p)))
			}
			return
		}
		if l := &c.leases.least[i]; *l == 0 || leases[i].TTL < *l {
			*l = leases[i].TTL
		}
	}
	switch {
	case !p.in[1]:
		c.missing(where, 0, "this lease")
	case !p.in[0]:
		c.missing(where, 1, "this lease")
	case !bytes.Equal(p.values[0], p.values[1]):
		c.leaseFields(where, &leases[0], &leases[1])
	}
}

func (c *comparison) leaseFields(where string, a, b *leasepb.Lease) {
	var all []string
	say := func(what string, a, b int64) {
		all = append(all, fmt.Sprintf("%s is %d in %s, and %d in %s", what, a, c.sides[0].Name, b, c.sides[1].Name))
	}
	if a.ID != b.ID {
		say("the lease's ID", a.ID, b.ID)
	}
	if a.RemainingTTL != b.RemainingTTL {
		if c.sides[0].storage || c.sides[1].storage {
			say("the time left, in seconds,", a.RemainingTTL, b.RemainingTTL)
		} else {
			c.left.checkpoints++
		}
	}
	switch {
	case len(all) > 0 && a.TTL != b.TTL:
		say("the granted time, in seconds,", a.TTL, b.TTL)
	case a.TTL != b.TTL:
		say("the granted time, in seconds,", a.TTL, b.TTL)
		c.leases.differ(a.TTL, b.TTL)
		if c.leases.count++; len(c.leases.findings) < c.o.MaxFindings {
			c.leases.findings = append(c.leases.findings, report.Finding{Where: where, Text: strings.Join(all, "; ")})
		}
		return
	}
	if len(all) > 0 {
		c.found(where, strings.Join(all, "; "))
	}
}

func (l *leaseTimes) differ(a, b int64) {
	i, ttl := 0, a
	if b > a {
		i, ttl = 1, b
	}
	if l.longer[i]++; l.longer[i] == 1 {
		l.value[i] = ttl
	}
	l.several = l.several || l.value[i] != ttl
}

// leaseEnd decides whether the leases' times differ because short ones were
// raised to another minimum.
func (c *comparison) leaseEnd() {
	l := &c.leases
	i := 0
	if l.longer[1] > 0 {
		i = 1
	}
	if l.count > 0 && l.longer[1-i] == 0 && !l.several && l.value[i] <= mostMinTTL && l.least[i] == l.value[i] {
		c.left.raised = fmt.Sprintf("%d short leases were granted %d s in %s and less in %s, as if its members had raised them to their minimum, 1.5 times the election timeout: if that is not what they are configured to, these leases differ",
			l.count, l.value[i], c.sides[i].Name, c.sides[1-i].Name)
		return
	}
	for _, f := range l.findings {
		c.found(f.Where, f.Text)
	}
	c.differences += l.count - int64(len(l.findings))
}

func leaseName(key []byte) string {
	if len(key) != 8 {
		return fmt.Sprintf("row %x", key)
	}
	return fmt.Sprintf("lease %016x", binary.BigEndian.Uint64(key))
}
