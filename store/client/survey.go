package client

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Survey is what the members said when all were asked at about one time.
type Survey struct {
	ClusterID uint64
	// Members holds one status for each member that answered, then one with
	// Err for each endpoint that did not.
	Members []MemberStatus
	// Membership is the member list, from a member that could give it: serializable, so
	// that it works without a quorum. Empty, with MembershipErr, where none could (a
	// learner cannot).
	Membership    []*pb.Member
	MembershipErr error
}

// MemberStatus is one member's answer to Status.
type MemberStatus struct {
	// Endpoint is the one that this status came through and that later calls go
	// to; Endpoints are all that lead to the same member.
	Endpoint  string
	Endpoints []string

	MemberID  uint64
	Name      string // from the member list; empty where that is not known
	ClusterID uint64

	Version string // of the server, such as 3.5.35

	IsLeader, IsLearner bool
	Leader              uint64 // 0: it sees none

	Revision     int64
	RaftIndex    uint64 // committed, as it knows
	RaftTerm     uint64 // of the last entry that it applied
	AppliedIndex uint64

	DBSize, DBSizeInUse int64 // bytes
	DBSizeQuota         int64 // bytes, from 3.6 on

	// Errors are Status's own: "no leader", and the alarms of the whole cluster.
	Errors []string
	Alarms []Alarm
	// Err says why there is no status; only Endpoint and Endpoints are set then and, with
	// ErrOtherHistory, who it is.
	Err error
}

// String names the member for people.
func (m MemberStatus) String() string {
	switch {
	case m.Name != "":
		return fmt.Sprintf("member %s (%x, %s)", m.Name, m.MemberID, m.Endpoint)
	case m.MemberID != 0:
		return fmt.Sprintf("member %x (%s)", m.MemberID, m.Endpoint)
	default:
		return "endpoint " + m.Endpoint
	}
}

// defaultQuota is etcd's --quota-backend-bytes unless it is set; 3.5 does not report it.
const defaultQuota = 2 << 30

// Warnings are its errors, and that its database will soon be full.
func (m MemberStatus) Warnings() []string {
	quota, of := m.DBSizeQuota, "its quota"
	if quota == 0 && m.DBSize <= defaultQuota { // a larger one shows that the quota is
		quota, of = defaultQuota, "the default quota (3.5 does not report its own)"
	}
	if quota <= 0 || m.DBSize < quota/5*4 {
		return m.Errors
	}
	next := "compact and defragment, or raise --quota-backend-bytes"
	if m.DBSizeInUse < m.DBSize/2 {
		next = "defragment: more than half of it is free"
	}
	return append(slices.Clone(m.Errors), fmt.Sprintf("the database has %s of %s of %s, and etcd refuses writes when it is full (NOSPACE): %s",
		humanize.IBytes(uint64(m.DBSize)), of, humanize.IBytes(uint64(quota)), next))
}

// Survey asks all endpoints at once, each bounded by CommandTimeout. Endpoints
// that fail are part of the answer; the error is for none that answers, and a
// *MixedClustersError for more than one cluster. A member whose database cannot be of the
// history that most members have fails with ErrOtherHistory.
func (c *Client) Survey(ctx context.Context) (Survey, error) {
	survey, err := c.survey(ctx)
	if err != nil || len(foreignTo(survey.Members, survey.Members)) == 0 {
		return survey, err
	}
	// What a member applied between the reading of its revision and of its index looks alike.
	now, err := c.survey(ctx)
	if err != nil {
		return now, err
	}
	for _, i := range foreignTo(now.Members, survey.Members) {
		m := now.Members[i]
		now.Members[i] = MemberStatus{Endpoint: m.Endpoint, Endpoints: m.Endpoints, MemberID: m.MemberID, ClusterID: m.ClusterID, Name: m.Name, Err: fmt.Errorf("%s: revision %d at raft index %d: %w", m, m.Revision, m.AppliedIndex, ErrOtherHistory)}
	}
	return now, nil
}

// ErrOtherHistory says that a member's revision cannot be of the history that most
// members have: its database was restored, and the others' log was applied to it.
var ErrOtherHistory = errors.New("its database is not the one that most members have, such as one that was restored: remove the member, and add it again with an empty data directory")

// foreignTo returns the members whose revisions cannot be of the history that a majority
// of those that answered have: each entry moves the revision by one at most. A revision
// was read before the index beside it, and after the index that the member had in before.
// A new member that has not received anything yet fits.
func foreignTo(members, before []MemberStatus) (all []int) {
	first := func(m MemberStatus) uint64 {
		for _, b := range before {
			if b.Err == nil && b.MemberID == m.MemberID {
				return b.AppliedIndex
			}
		}
		return 0
	}
	fit := func(a, b MemberStatus) bool {
		if a.Revision > b.Revision {
			a, b = b, a
		}
		return a.Revision <= 1 || uint64(b.Revision-a.Revision) <= max(b.AppliedIndex+1, first(a))-first(a)
	}
	answered := 0
	count := make([]int, len(members)) // with how many each fits
	for i, a := range members {
		if a.Err != nil {
			continue
		}
		answered++
		for _, b := range members {
			if b.Err == nil && fit(a, b) {
				count[i]++
			}
		}
	}
	if slices.Max(append(count, 0)) <= answered/2 {
		return nil // nothing shows which ones are right
	}
	for i, n := range count {
		if members[i].Err == nil && n <= answered/2 {
			all = append(all, i)
		}
	}
	return all
}

func (c *Client) survey(ctx context.Context) (Survey, error) {
	statuses := c.askAll(ctx, c.all())
	survey, err := summarize(statuses)
	if err != nil {
		return survey, err
	}
	c.addMembership(ctx, &survey)
	if !c.config.DiscoverEndpoints {
		return survey, nil
	}
	found := c.discover(survey)
	if len(found) == 0 {
		return survey, nil
	}
	membership, membershipErr := survey.Membership, survey.MembershipErr
	if survey, err = summarize(append(statuses, c.askAll(ctx, found)...)); err != nil {
		return survey, err
	}
	survey.Membership, survey.MembershipErr = membership, membershipErr
	survey.setNames()
	return survey, nil
}

func (c *Client) askAll(ctx context.Context, endpoints []*endpoint) []MemberStatus {
	statuses := make([]MemberStatus, len(endpoints))
	var wg sync.WaitGroup
	for i, e := range endpoints {
		wg.Go(func() { statuses[i] = c.status(ctx, e) })
	}
	wg.Wait()
	return statuses
}

// Status asks the member again, over the same endpoint. An answer by another
// member or cluster is an error.
func (c *Client) Status(ctx context.Context, member MemberStatus) (MemberStatus, error) {
	e, err := c.known(member.Endpoint)
	if err != nil {
		return MemberStatus{}, err
	}
	now := c.status(ctx, e)
	if now.Err != nil {
		return MemberStatus{}, now.Err
	}
	if err := sameMember(e, member, now.MemberID, now.ClusterID); err != nil {
		return MemberStatus{}, err
	}
	now.Name, now.Endpoints = member.Name, member.Endpoints
	return now, nil
}

// ErrTooOld says that a member runs an etcd before 3.5.
var ErrTooOld = errors.New("it is out of support: upgrade it to etcd 3.5 or later")

// tooOld reports whether the server's version is 3.4 or older.
func tooOld(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && (major < 3 || major == 3 && minor < 5)
}

func (c *Client) status(ctx context.Context, e *endpoint) MemberStatus {
	ctx, cancel := context.WithTimeout(ctx, c.config.CommandTimeout)
	defer cancel()
	var resp *pb.StatusResponse
	err := c.call(ctx, e, "asking for status", func(ctx context.Context) (err error) {
		resp, err = e.maintenance.Status(ctx, &pb.StatusRequest{})
		return err
	})
	status := MemberStatus{Endpoint: e.name, Endpoints: []string{e.name}}
	if err != nil {
		status.Err = err
		return status
	}
	if tooOld(resp.Version) {
		status.Err = fmt.Errorf("%s runs etcd %s: %w", e.name, resp.Version, ErrTooOld)
		return status
	}
	status.MemberID = resp.Header.GetMemberId()
	status.ClusterID = resp.Header.GetClusterId()
	status.Version = resp.Version
	status.IsLearner = resp.IsLearner
	status.Leader = resp.Leader
	status.IsLeader = resp.Leader != 0 && resp.Leader == status.MemberID
	status.Revision = resp.Header.GetRevision()
	status.RaftIndex, status.RaftTerm, status.AppliedIndex = resp.RaftIndex, resp.RaftTerm, resp.RaftAppliedIndex
	status.DBSize, status.DBSizeInUse, status.DBSizeQuota = resp.DbSize, resp.DbSizeInUse, resp.DbSizeQuota
	status.Errors, status.Alarms = resp.Errors, parseAlarms(resp.Errors)
	return status
}

// sameMember refuses answers from behind a load balancer.
func sameMember(e *endpoint, want MemberStatus, memberID, clusterID uint64) error {
	if memberID == want.MemberID && clusterID == want.ClusterID {
		return nil
	}
	return fmt.Errorf("endpoint %s: it was member %x of cluster %x and now answers as member %x of cluster %x; name the members' own addresses, not a load balancer's",
		e.name, want.MemberID, want.ClusterID, memberID, clusterID)
}

// summarize lists each member once and refuses a mixture of clusters.
func summarize(statuses []MemberStatus) (Survey, error) {
	var survey Survey
	var failed []MemberStatus
	for _, s := range statuses {
		if s.Err != nil {
			failed = append(failed, s)
			continue
		}
		i := slices.IndexFunc(survey.Members, func(m MemberStatus) bool {
			return m.MemberID == s.MemberID && m.ClusterID == s.ClusterID
		})
		if i >= 0 {
			survey.Members[i].Endpoints = append(survey.Members[i].Endpoints, s.Endpoint)
			continue
		}
		survey.Members = append(survey.Members, s)
	}
	answered := survey.Members
	survey.Members = append(slices.Clone(answered), failed...)
	if len(answered) == 0 {
		var reasons []error
		for _, s := range failed {
			reasons = append(reasons, s.Err)
		}
		return survey, fmt.Errorf("no endpoint of the cluster answers: %w", errors.Join(reasons...))
	}
	for _, s := range answered {
		if s.ClusterID != answered[0].ClusterID {
			return survey, &MixedClustersError{Answers: answered}
		}
	}
	survey.ClusterID = answered[0].ClusterID
	return survey, nil
}

// MixedClustersError says that one list of endpoints leads to members of more
// than one cluster.
type MixedClustersError struct {
	Answers []MemberStatus
}

func (e *MixedClustersError) Error() string {
	var places []string
	for _, m := range e.Answers {
		for _, endpoint := range m.Endpoints {
			places = append(places, fmt.Sprintf("%s is of cluster %x", endpoint, m.ClusterID))
		}
	}
	return "the endpoints belong to different clusters: " + strings.Join(places, ", ") + "; name the endpoints of one cluster only"
}

// addMembership asks the members one after the other for the member list.
func (c *Client) addMembership(ctx context.Context, survey *Survey) {
	var failures []error
	for _, m := range survey.Members {
		if m.Err != nil || m.IsLearner {
			continue
		}
		list, err := c.memberList(ctx, m)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		survey.Membership = list
		survey.setNames()
		return
	}
	if len(failures) == 0 {
		failures = append(failures, errors.New("only learners answered, and a learner does not serve the member list"))
	}
	survey.MembershipErr = errors.Join(failures...)
}

// memberList returns the member list as the member has it, without asking a quorum.
func (c *Client) memberList(ctx context.Context, member MemberStatus) ([]*pb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.CommandTimeout)
	defer cancel()
	var resp *pb.MemberListResponse
	err := c.ask(ctx, member, "asking for the member list", func(ctx context.Context, e *endpoint) (_ *pb.ResponseHeader, err error) {
		resp, err = e.cluster.MemberList(ctx, &pb.MemberListRequest{Linearizable: false})
		return resp.GetHeader(), err
	})
	return resp.GetMembers(), err
}

func (s *Survey) setNames() {
	for i := range s.Members {
		m := &s.Members[i]
		for _, info := range s.Membership {
			if m.Err == nil && info.ID == m.MemberID {
				m.Name = info.Name
			}
		}
	}
}

// discover adds the first client URL of each member that no endpoint leads to.
// A URL that cannot be used is logged: the user did not write it.
func (c *Client) discover(survey Survey) []*endpoint {
	var added []*endpoint
	for _, info := range survey.Membership {
		reached := slices.ContainsFunc(survey.Members, func(m MemberStatus) bool { return m.Err == nil && m.MemberID == info.ID })
		if reached {
			continue
		}
		for _, url := range info.ClientURLs {
			if _, err := c.known(url); err == nil {
				break // asked already, and its failure is in the survey
			}
			e, err := c.endpoint(url)
			if err != nil {
				c.config.Logger.Warn("a member advertises a client URL that cannot be used", "member", info.Name, "error", err)
				continue
			}
			added = append(added, e)
			break
		}
	}
	return added
}

// Alarm is one alarm that is raised in a cluster.
type Alarm struct {
	MemberID uint64 // 0: etcd could not say which member it is about
	Type     string // NOSPACE or CORRUPT
}

// alarmText is how every version prints an alarm into Status's errors. Asking
// with the Alarm call would be cleaner, and would be one more entry in the
// raft log each time. Newer servers put one or two spaces between the fields.
var alarmText = regexp.MustCompile(`^(?:memberID:(\d+)\s+)?alarm:([A-Z]+)\s*$`)

func parseAlarms(errors []string) []Alarm {
	var alarms []Alarm
	for _, text := range errors {
		match := alarmText.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		alarm := Alarm{Type: match[2]}
		if match[1] != "" {
			id, err := strconv.ParseUint(match[1], 10, 64)
			if err != nil {
				continue // more digits than an ID can have: not an alarm
			}
			alarm.MemberID = id
		}
		alarms = append(alarms, alarm)
	}
	return alarms
}

// suspect reports whether a CORRUPT alarm is about this member, or about one
// that etcd could not name.
func (m MemberStatus) suspect() bool {
	for _, a := range m.Alarms {
		if a.Type == "CORRUPT" && (a.MemberID == 0 || a.MemberID == m.MemberID) {
			return true
		}
	}
	return false
}
