package sources

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/snapshot"
)

// oldMembers are three voters and a learner, and with unnamed one that was added
// and never started.
func oldMembers(unnamed bool) *Plan {
	p := &Plan{}
	for i := range 4 {
		n := i + 1
		p.Members = append(p.Members, snapshot.Member{ID: snapshot.ID(0x10 + n), Name: fmt.Sprint("m", n), PeerURLs: []string{fmt.Sprintf("http://h%d:2380", n)},
			ClientURLs: []string{fmt.Sprintf("http://h%d:2379", n)}, IsLearner: n == 4})
	}
	if unnamed {
		p.Members = append(p.Members, snapshot.Member{ID: 0x15, PeerURLs: []string{"http://h5:2380"}})
	}
	return p
}

func spell(all []NewMember) string {
	var list []string
	for _, m := range all {
		text := m.Name + "=" + strings.Join(m.PeerURLs, "+")
		if len(m.ClientURLs) > 0 {
			text += " for " + strings.Join(m.ClientURLs, "+")
		}
		if m.Learner {
			text += " learner"
		}
		if m.Old != m.Name {
			text += " was " + m.Old
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// Hosts that are gone for good: any of the old members, with other names and
// addresses as asked; voters and learners stay what they are.
func TestNewMembers(t *testing.T) {
	const m1, m2, m3, m4 = "m1=http://h1:2380 for http://h1:2379", "m2=http://h2:2380 for http://h2:2379", "m3=http://h3:2380 for http://h3:2379", "m4=http://h4:2380 for http://h4:2379 learner"
	for name, c := range map[string]struct {
		unnamed bool
		r       MembersRequest
		want    string
	}{
		"as they were":  {want: strings.Join([]string{m1, m2, m3, m4}, "; ")},
		"other address": {r: MembersRequest{Replace: []Replacement{{Old: "m3", PeerURLs: []string{"http://n3:2380"}}}}, want: strings.Join([]string{m1, m2, "m3=http://n3:2380", m4}, "; ")},
		"other name, by ID": {r: MembersRequest{Replace: []Replacement{{Old: "12", Name: "a2", PeerURLs: []string{"http://n2:2380"}}}},
			want: strings.Join([]string{"a2=http://n2:2380 was m2", m1, m3, m4}, "; ")},
		"only another name": {r: MembersRequest{Replace: []Replacement{{Old: "m1", Name: "x1"}}, Names: []string{"x1"}}, want: "x1=http://h1:2380 for http://h1:2379 was m1"},
		"swapped": {r: MembersRequest{Replace: []Replacement{{Old: "m1", Name: "m2"}, {Old: "m2", Name: "m1"}}, Names: []string{"m1"}},
			want: "m1=http://h2:2380 for http://h2:2379 was m2"},
		"swapped addresses": {r: MembersRequest{Replace: []Replacement{{Old: "m1", PeerURLs: []string{"http://h2:2380"}}, {Old: "m2", PeerURLs: []string{"http://h1:2380"}}}, Names: []string{"m1", "m2"}},
			want: "m1=http://h2:2380; m2=http://h1:2380"},
		"by names":               {r: MembersRequest{Names: []string{"m4", "m2"}}, want: m2 + "; " + m4},
		"by an old name":         {r: MembersRequest{Replace: []Replacement{{Old: "m2", Name: "n2"}}, Names: []string{"m2"}}, want: "n2=http://h2:2380 for http://h2:2379 was m2"},
		"one":                    {r: MembersRequest{Count: 1}, want: m1},
		"one that has a host":    {r: MembersRequest{Count: 1, Available: []string{"m3", "elsewhere", "m4"}}, want: m3},
		"a learner is the last":  {r: MembersRequest{Count: 2, Available: []string{"m4", "m2", "m3"}}, want: m2 + "; " + m3},
		"and stays one":          {r: MembersRequest{Count: 3, Available: []string{"m4", "m2", "m3"}}, want: m2 + "; " + m3 + "; " + m4},
		"old hosts before new":   {r: MembersRequest{Count: 2, Replace: []Replacement{{Old: "m1", PeerURLs: []string{"http://n1:2380"}}}}, want: m2 + "; " + m3},
		"the new host alone":     {r: MembersRequest{Count: 1, Replace: []Replacement{{Old: "m1", Name: "n1", PeerURLs: []string{"http://n1:2380"}}}, Available: []string{"n1"}}, want: "n1=http://n1:2380 was m1"},
		"without the unnamed":    {unnamed: true, r: MembersRequest{Names: []string{"m1"}}, want: m1},
		"the unnamed comes last": {unnamed: true, r: MembersRequest{Count: 3}, want: m1 + "; " + m2 + "; " + m3},
		"the unnamed is named": {unnamed: true, r: MembersRequest{Replace: []Replacement{{Old: "0000000000000015", Name: "m5"}}, Names: []string{"m5", "m1"}},
			want: m1 + "; m5=http://h5:2380 was 0000000000000015"},
	} {
		t.Run(name, func(t *testing.T) {
			p := oldMembers(c.unnamed)
			got, err := p.NewMembers(c.r)
			if err != nil || spell(got) != c.want {
				t.Errorf("%s, %v\nwant %s", spell(got), err, c.want)
			}
			if fmt.Sprint(p) != fmt.Sprint(oldMembers(c.unnamed)) {
				t.Errorf("the plan was changed: %+v", p)
			}
		})
	}
}

// What cannot be is refused, and the error says what to ask for.
func TestNewMembersRefused(t *testing.T) {
	for name, c := range map[string]struct {
		p    *Plan
		r    MembersRequest
		want []string
	}{
		"nobody known":      {p: &Plan{}, want: []string{"not known", "--initial-cluster"}},
		"nobody of a name":  {r: MembersRequest{Replace: []Replacement{{Old: "m9", Name: "x"}}}, want: []string{"m9", "m1, m2, m3, m4"}},
		"no name":           {r: MembersRequest{Replace: []Replacement{{Name: "x"}}}, want: []string{"no such member"}},
		"by nothing":        {r: MembersRequest{Replace: []Replacement{{Old: "m1"}}}, want: []string{"m1", "by what"}},
		"twice":             {r: MembersRequest{Replace: []Replacement{{Old: "m1", Name: "x"}, {Old: "0000000000000011", Name: "y"}}}, want: []string{"twice"}},
		"one name for two":  {r: MembersRequest{Replace: []Replacement{{Old: "m1", Name: "m2"}}}, want: []string{"m2", "m1", "another name"}},
		"one URL for two":   {r: MembersRequest{Replace: []Replacement{{Old: "m1", PeerURLs: []string{"https://H2:2380"}}}}, want: []string{"m1", "m2", "share"}},
		"one URL twice":     {r: MembersRequest{Replace: []Replacement{{Old: "m1", PeerURLs: []string{"http://n1:2380", "http://n1:2380"}}}}, want: []string{"m1", "twice"}},
		"no URL":            {r: MembersRequest{Replace: []Replacement{{Old: "m1", PeerURLs: []string{"n1:2380"}}}}, want: []string{"m1", "https://10.0.0.1:2380"}},
		"no port":           {r: MembersRequest{Replace: []Replacement{{Old: "m1", PeerURLs: []string{"http://n1"}}}}, want: []string{"m1", "https://10.0.0.1:2380"}},
		"no such name":      {r: MembersRequest{Replace: []Replacement{{Old: "m1", Name: "m=1"}}}, want: []string{"m=1"}},
		"names and count":   {r: MembersRequest{Names: []string{"m1"}, Count: 1}, want: []string{"not by both"}},
		"negative":          {r: MembersRequest{Count: -1}, want: []string{"at least 1"}},
		"a name twice":      {r: MembersRequest{Names: []string{"m1", "0000000000000011"}}, want: []string{"twice"}},
		"names of nobody":   {r: MembersRequest{Names: []string{"m1", "m8"}}, want: []string{"m8", "m1, m2, m3, m4"}},
		"more than there":   {r: MembersRequest{Count: 5}, want: []string{"4 members", "--replace"}},
		"more than hosts":   {r: MembersRequest{Count: 2, Available: []string{"m2"}}, want: []string{"only 1", "fewer"}},
		"no host at all":    {r: MembersRequest{Count: 1, Available: []string{"elsewhere"}}, want: []string{"only 0", "--replace"}},
		"only learners":     {r: MembersRequest{Names: []string{"m4"}}, want: []string{"learner", "voter"}},
		"only its host":     {r: MembersRequest{Count: 1, Available: []string{"m4"}}, want: []string{"learner", "voter"}},
		"one never started": {p: oldMembers(true), want: []string{"15", "never started", "http://h5:2380", "--replace", "--members"}},
		"without a URL":     {p: &Plan{Members: []snapshot.Member{{ID: 1, Name: "m1"}}}, want: []string{"m1", "peer URL", "--replace"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.p
			if p == nil {
				p = oldMembers(false)
			}
			got, err := p.NewMembers(c.r)
			var request *restore.RequestError
			if !errors.As(err, &request) || got != nil {
				t.Fatalf("%s, %v", spell(got), err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\nwant %q", err, w)
				}
			}
		})
	}
}
