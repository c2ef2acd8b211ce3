package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/store"
)

// examineCluster looks at endpoints, quorum, versions and rights.
func (e *examination) examineCluster(ctx context.Context, client *store.Client, encrypted bool) {
	survey, err := client.Survey(ctx)
	if err != nil {
		e.failed("endpoints", err, "name the members' client URLs with "+e.orKey("--endpoints", "etcd.endpoints")+", and what TLS and users need")
		return
	}
	e.survey = &survey
	reached := 0
	for _, m := range survey.Members {
		if m.Err != nil {
			e.add(checkWarn, "endpoint "+m.Endpoint, m.Err.Error(), "backups go on with the others; check this one")
			continue
		}
		reached++
		e.examineVersion(m)
		for _, problem := range m.Errors {
			e.add(checkWarn, m.String(), problem, "")
		}
	}
	e.add(checkOK, "endpoints", fmt.Sprintf("%d of %d lead to members of cluster %016x", reached, len(survey.Members), survey.ClusterID), "")
	e.examineMembership(survey)
	barrier, err := client.Barrier(ctx, survey)
	if err != nil {
		e.failed("quorum", err, "a backup needs a quorum; without one, restore from a member's data directory or the repository")
		return
	}
	e.add(checkOK, "quorum", fmt.Sprintf("confirmed raft index %d, revision %d", barrier.Index, barrier.Revision), "")
	if e.agent == nil || e.agent.Jobs.Full.Enabled {
		e.examineRights(ctx, client, survey, barrier)
	}
	for _, m := range survey.Members {
		if m.Err == nil && strings.HasPrefix(m.Version, "3.4.") && !encrypted {
			e.add(checkWarn, "encryption", "the log of etcd 3.4 holds passwords in plain text when users are added or change theirs", "encrypt the archive: "+e.orKey("--recipient age1…", "encryption.recipients: age1…"))
			break
		}
	}
}

// oldestMinor and newestMinor bound the versions 3.x that are read.
const (
	oldestMinor = 4
	newestMinor = 7
)

func (e *examination) examineVersion(m store.MemberStatus) {
	check := m.String()
	parts := strings.Split(m.Version, ".")
	minor := -1
	if len(parts) >= 2 && parts[0] == "3" {
		if n, err := strconv.Atoi(parts[1]); err == nil {
			minor = n
		}
	}
	switch {
	case minor < oldestMinor:
		e.add(checkFail, check, fmt.Sprintf("etcd %s", m.Version), fmt.Sprintf("etcd 3.%d to 3.%d can be backed up: upgrade it first", oldestMinor, newestMinor))
	case minor > newestMinor:
		e.add(checkFail, check, fmt.Sprintf("etcd %s", m.Version), fmt.Sprintf("this version of requorum knows etcd up to 3.%d: use a newer one", newestMinor))
	default:
		e.add(checkOK, check, fmt.Sprintf("etcd %s, database %s", m.Version, size(m.DBSize)), "")
	}
}

// examineMembership finds members that no endpoint leads to.
func (e *examination) examineMembership(survey store.Survey) {
	if survey.MembershipErr != nil {
		e.add(checkWarn, "members", survey.MembershipErr.Error(), "name an endpoint of a voting member")
		return
	}
	var missing []string
	for _, info := range survey.Membership {
		found := false
		for _, m := range survey.Members {
			found = found || m.Err == nil && m.MemberID == info.ID
		}
		if !found {
			missing = append(missing, fmt.Sprintf("%s (%016x)", orNone(info.Name), info.ID))
		}
	}
	if len(missing) > 0 {
		e.add(checkWarn, "members", "no endpoint leads to "+strings.Join(missing, ", "), "name all members' client URLs, so that a backup goes on without one")
	}
}

// rightsTimeout bounds the beginning of a snapshot stream.
const rightsTimeout = 10 * time.Second

// examineRights begins a snapshot of the member that a backup would read, and
// ends it at once: only that tells whether it is allowed.
func (e *examination) examineRights(ctx context.Context, client *store.Client, survey store.Survey, barrier store.Barrier) {
	candidates := client.Candidates(survey, barrier)
	if len(candidates) == 0 {
		e.add(checkFail, "snapshot", "no member can be read", "bring up a member that has caught up, and name its client URL with "+e.orKey("--endpoints", "etcd.endpoints"))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	stream, err := client.Stream(ctx, candidates[0])
	if err != nil {
		e.failed("snapshot", err, "with authentication on, etcd gives snapshots to users with the root role only; archiving alone does with any user")
		return
	}
	if err := stream.Close(); err != nil {
		e.failed("snapshot", err, "see whether the connection to the member holds, and try again")
		return
	}
	e.add(checkOK, "snapshot", candidates[0].String()+" gives one", "")
}
