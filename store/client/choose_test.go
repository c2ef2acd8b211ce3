package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func names(list []MemberStatus) string {
	var out []string
	for _, m := range list {
		out = append(out, m.Name)
	}
	return strings.Join(out, " ")
}

func TestCandidates(t *testing.T) {
	const at = 100_000
	var (
		leader   = MemberStatus{Name: "leader", MemberID: 1, Version: "3.7.3", IsLeader: true, Leader: 1, AppliedIndex: at}
		follower = MemberStatus{Name: "follower", MemberID: 2, Version: "3.7.3", Leader: 1, AppliedIndex: at - 10}
		fresher  = MemberStatus{Name: "fresher", MemberID: 3, Version: "3.7.3", Leader: 1, AppliedIndex: at}
		learner  = MemberStatus{Name: "learner", MemberID: 4, Version: "3.7.3", Leader: 1, AppliedIndex: at - 20, IsLearner: true}
		behind   = MemberStatus{Name: "behind", MemberID: 5, Version: "3.7.3", Leader: 1, AppliedIndex: at - FarBehind - 1, IsLearner: true}
		alone    = MemberStatus{Name: "alone", MemberID: 6, Version: "3.7.3", AppliedIndex: at - 1, Errors: []string{"etcdserver: no leader"}}
		silent   = MemberStatus{Name: "silent", Err: errors.New("refused")}
	)
	alarmed := func(m MemberStatus, alarms ...string) MemberStatus {
		m.Errors, m.Alarms = alarms, parseAlarms(alarms)
		return m
	}
	rev := func(m MemberStatus, revision int64) MemberStatus {
		m.Revision = revision
		return m
	}
	for _, tt := range []struct {
		name    string
		members []MemberStatus
		want    string
	}{
		{"roles", []MemberStatus{leader, follower, fresher, learner}, "learner fresher follower leader"},
		{"far behind comes after the leader", []MemberStatus{behind, leader}, "leader behind"},
		{"no leader in sight", []MemberStatus{alone, leader}, "leader alone"},
		{"silent", []MemberStatus{silent, leader}, "leader"},
		{"full", []MemberStatus{alarmed(follower, "memberID:2 alarm:NOSPACE "), leader}, "follower leader"},
		{"corrupt", []MemberStatus{alarmed(follower, "memberID:2  alarm:CORRUPT"), alarmed(leader, "memberID:2  alarm:CORRUPT")}, "leader"},
		{"diverged", []MemberStatus{rev(leader, 7), rev(fresher, 9), rev(fresher, 7)}, "fresher leader fresher"},
		{"corrupt, nobody knows who", []MemberStatus{alarmed(follower, "alarm:CORRUPT"), alarmed(leader, "alarm:CORRUPT")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 {
				got := names((&Client{}).Candidates(Survey{Members: tt.members}, Barrier{Index: at}))
				if got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
				slices.Reverse(tt.members)
			}
		})
	}
}

func TestParseAlarms(t *testing.T) {
	got := parseAlarms([]string{"etcdserver: no leader", "memberID:10276657743932975437 alarm:NOSPACE ", "memberID:3  alarm:CORRUPT", "alarm:CORRUPT"})
	want := []Alarm{{10276657743932975437, "NOSPACE"}, {3, "CORRUPT"}, {0, "CORRUPT"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTooOld(t *testing.T) {
	for version, want := range map[string]bool{"3.4.23": true, "3.3.0": true, "3.5.0": false, "3.5.0-rc.1": false, "3.10.1": false, "4.0.0": false, "2.3.8": true, "": false} {
		if got := tooOld(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

func TestParseEndpoint(t *testing.T) {
	for _, tt := range []struct {
		in       string
		wantsTLS bool
		want     address
		err      string
	}{
		{in: "http://10.0.0.1:2379", wantsTLS: true, want: address{"tcp", "10.0.0.1:2379", "10.0.0.1:2379", false}},
		{in: "https://[::1]:2379/", want: address{"tcp", "[::1]:2379", "[::1]:2379", true}},
		{in: "etcd.local:2379", want: address{"tcp", "etcd.local:2379", "etcd.local:2379", false}},
		{in: "etcd.local:2379", wantsTLS: true, want: address{"tcp", "etcd.local:2379", "etcd.local:2379", true}},
		{in: "unix:///run/etcd.sock", want: address{"unix", "/run/etcd.sock", "etcd.sock", false}},
		{in: "unixs://localhost:123", want: address{"unix", "localhost:123", "localhost", true}},
		{in: "10.0.0.1", err: "has no port: write 10.0.0.1:2379"},
		{in: "http://127.0.0.1:", err: "has no port: write http://127.0.0.1:2379"},
		{in: "https://[::1]/", err: "has no port: write https://[::1]:2379"},
		{in: "", err: "want host and port"},
		{in: "http://", err: "want host and port"},
		{in: "ftp://a:1", err: `scheme "ftp" is not known`},
		{in: "unix://", err: "no path"},
		{in: "http://user:secret@a:1", err: "only scheme, host and port"},
	} {
		got, err := parseEndpoint(tt.in, tt.wantsTLS)
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("%q: %+v, %v; want %+v", tt.in, got, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q: error %v", tt.in, err)
		}
	}
}

func TestSummarizeNoneAnswers(t *testing.T) {
	why := errors.New("refused")
	_, err := summarize([]MemberStatus{{Endpoint: "a", Err: why}, {Endpoint: "b", Err: context.Canceled}})
	if !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
