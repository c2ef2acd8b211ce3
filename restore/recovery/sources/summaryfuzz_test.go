package sources

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// A summary that is whole can still say what no member's data says: neither what
// is found of it nor what is decided goes wrong otherwise than by an error.
func FuzzSummaryDocuments(f *testing.F) {
	facts := snapshot.Facts{RaftIndex: 5, RaftTerm: 1, Revision: 3, Members: []snapshot.Member{{ID: 1, Name: "m1"}, {ID: 2, Name: "m2"}}}
	head := summaryHead{Facts: []snapshot.Facts{facts}, Missing: &logError{Text: "older files are gone"}, Remains: Remains{
		DataDir: "/d", ClusterID: 7, MemberID: 1, Databases: []Database{{Path: "/d/member/snap/db", Index: 5, Term: 1, Revision: 3}}, Written: time.Unix(1, 0).UTC(),
		Log: &Log{FirstIndex: 3, LastIndex: 9, LastTerm: 2, Commit: 8, Ranges: []Range{{3, 9}}, Restored: true}}}
	end := summaryEnd{Error: &logError{Dir: "/d", Segment: "1.wal", Offset: 8, Text: "wrong CRC"}}
	for _, seed := range [][2]any{{head, end}, {head, summaryEnd{}}, {summaryHead{}, summaryEnd{}}, {summaryHead{Remains: Remains{Log: &Log{}}}, end}} {
		h, err := json.Marshal(seed[0])
		require.NoError(f, err)
		e, err := json.Marshal(seed[1])
		require.NoError(f, err)
		f.Add(h, e, uint64(3), []byte("a change"))
	}
	f.Fuzz(func(t *testing.T, head, end []byte, first uint64, change []byte) {
		if !json.Valid(head) || !json.Valid(end) || first > 1<<62 {
			return
		}
		var summaries []Summary
		for _, name := range []string{"m1", "m2"} {
			var b bytes.Buffer
			w, err := newSummaryWriter(&b, json.RawMessage(head))
			require.NoError(t, err)
			for i := range uint64(6) {
				e := logEntry{Entry: raftlog.Entry{Index: first + i + 1, Term: 1}, Outline: true, Moves: i%2 == 0}
				if i == 3 {
					e = wholeEntry(raftlog.Entry{Index: first + i + 1, Term: 1, Type: raftpb.EntryType(first % 3), Data: change})
				}
				require.NoError(t, w.Add(e))
			}
			require.NoError(t, w.End(json.RawMessage(end)))
			summaries = append(summaries, summarized(name, b.Bytes()))
		}
		found, err := Survey(t.Context(), SurveyRequest{Summaries: summaries})
		if err != nil {
			return
		}
		p, err := Decide(found, DecideRequest{})
		if err == nil {
			_, _ = p.NewMembers(MembersRequest{})
		}
	})
}
