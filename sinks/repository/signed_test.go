package repository_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/store/storetest"
)

// keyPair is a file with a private key, and a line for a file of trusted ones.
func keyPair(t *testing.T) (path, public string) {
	t.Helper()
	private, pub, err := signing.NewKey()
	require.NoError(t, err)
	return textFile(t, string(private)), strings.TrimSpace(string(pub))
}

func textFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func readKeys(t *testing.T, key, trust string, revoked ...string) signing.Keys {
	t.Helper()
	keys, err := signing.Read(key, trust, revoked)
	require.NoError(t, err)
	return keys
}

// ownAndForeign are one repository, opened by who signs and checks, and by somebody else.
func ownAndForeign(t *testing.T, keys signing.Keys) (place sinks.Sink, own, other *repository.Repository) {
	t.Helper()
	place = sinktest.NewMemory()
	own, err := repository.Init(t.Context(), repository.WithKeys(place, keys), time.Now())
	require.NoError(t, err)
	other, err = repository.Open(t.Context(), place)
	require.NoError(t, err)
	return place, own, other
}

var (
	signedTimeline = repository.TimelineID{ClusterID: 0xab, N: 1}
	otherTimeline  = repository.TimelineID{ClusterID: 0xab, N: 2}
)

const signedBackup = "20260102T150405Z-3f9a2c"

// kinds are documents of every kind: their names in two timelines, jobs or numbers.
var kinds = map[string][2]string{
	"timeline":    {repository.TimelineName(signedTimeline), repository.TimelineName(otherTimeline)},
	"manifest":    {repository.ManifestName(signedTimeline, signedBackup), repository.ManifestName(otherTimeline, signedBackup)},
	"superseded":  {repository.SupersededName(signedTimeline, 1), repository.SupersededName(otherTimeline, 1)},
	"mark":        {repository.MarkName{Timeline: signedTimeline, Index: 1}.String(), repository.MarkName{Timeline: otherTimeline, Index: 1}.String()},
	"gap":         {repository.GapName{Timeline: signedTimeline, First: 1, Last: 2}.String(), repository.GapName{Timeline: otherTimeline, First: 1, Last: 2}.String()},
	"segment":     {repository.SegmentName{Timeline: signedTimeline, First: 1}.String(), repository.SegmentName{Timeline: otherTimeline, First: 1}.String()},
	"merged":      {repository.SegmentName{Timeline: signedTimeline, Level: 1, First: 1, Last: 2}.String(), repository.SegmentName{Timeline: otherTimeline, Level: 1, First: 1, Last: 2}.String()},
	"verdict":     {repository.VerdictName{Sequence: 1, Level: "none", Outcome: "passed"}.String(), repository.VerdictName{Sequence: 2, Level: "none", Outcome: "passed"}.String()},
	"pruned":      {repository.PrunedName(signedTimeline, signedBackup), repository.PrunedName(otherTimeline, signedBackup)},
	"pruned log":  {repository.PrunedLogName(signedTimeline, 7), repository.PrunedLogName(otherTimeline, 7)},
	"pin":         {repository.PinName(signedTimeline, signedBackup), repository.PinName(otherTimeline, signedBackup)},
	"claim":       {repository.ClaimName("full", "20260102T010000Z", 1), repository.ClaimName("prune", "20260102T010000Z", 1)},
	"job":         {repository.JobResultName("full", "20260102T010000Z"), repository.JobResultName("prune", "20260102T010000Z")},
	"failed job":  {repository.JobFailedName("full", "20260102T010000Z", 1), repository.JobFailedName("prune", "20260102T010000Z", 1)},
	"lease":       {repository.LeaseName(1), repository.LeaseName(2)},
	"other kinds": {repository.PinName(signedTimeline, signedBackup), repository.PrunedName(signedTimeline, signedBackup)},
}

// Whatever the kind of a document: who knows whom to trust reads what that one
// signed, where that one put it, and nothing else.
func TestForeign(t *testing.T) {
	key, public := keyPair(t)
	strangerKey, _ := keyPair(t)
	trust := textFile(t, "ops "+public)
	past := textFile(t, `ops valid-before="20200101Z" `+public)
	revoked := textFile(t, public)
	type body struct{ Text string }
	for kind, names := range kinds {
		name, elsewhere := names[0], names[1]
		t.Run(kind, func(t *testing.T) {
			ctx := t.Context()
			places := map[string]sinks.Sink{}
			open := func(place string, keys signing.Keys) *repository.Repository {
				if places[place] == nil {
					places[place] = sinktest.NewMemory()
				}
				r, err := repository.Init(ctx, repository.WithKeys(places[place], keys), time.Now())
				require.NoError(t, err)
				return r
			}
			write := func(place, key string) []byte {
				r := open(place, readKeys(t, key, ""))
				require.NoError(t, r.WriteDocument(ctx, name, body{"it"}))
				data, err := r.ReadBytes(ctx, name)
				require.NoError(t, err)
				return data
			}
			good := write("good", key)
			unsigned := write("unsigned", "")
			copied := func(to string, place string, data []byte) string {
				open(place, signing.Keys{})
				_, err := sinks.Put(ctx, places[place], to, data, sinks.CreateOptions{})
				require.NoError(t, err)
				return place
			}
			write("stranger", strangerKey)
			for _, test := range []struct {
				why, place, name, trust, revoked, want string
			}{
				{"trusted", "good", name, trust, "", ""},
				{"unsigned", "unsigned", name, trust, "", "it is not signed"},
				{"by a stranger", "stranger", name, trust, "", "is not among those in"},
				{"revoked", "good", name, trust, revoked, "was revoked by"},
				{"outside its validity", "good", name, past, "", "is not valid at " + time.Now().UTC().Format("2006")},
				{"moved from another repository", copied(name, "other repository", good), name, trust, "", "moved here"},
				{"moved to another timeline, number, job or kind", copied(elsewhere, "good", good), elsewhere, trust, "", "moved here"},
				{"one byte changed", copied(name, "changed", bytes.Replace(good, []byte(`"it"`), []byte(`"is"`), 1)), name, trust, "", "does not match"},
				{"another's sum in the envelope", copied(name, "sum", resealed(t, good, unsigned, `"it"`, `"is"`)), name, trust, "", "moved here"},
				{"another time", copied(name, "time", bytes.Replace(good, []byte(`"signed": "`+time.Now().UTC().Format("2006")), []byte(`"signed": "2019`), 1)), name, trust, "", "moved here"},
			} {
				var revoked []string
				if test.revoked != "" {
					revoked = append(revoked, test.revoked)
				}
				r := open(test.place, readKeys(t, "", test.trust, revoked...))
				v := body{"untouched"}
				err := r.ReadDocument(ctx, test.name, &v)
				if test.want == "" {
					if err != nil || v.Text != "it" {
						t.Errorf("%s: %v, %v", test.why, v, err)
					}
					continue
				}
				if !errors.Is(err, repository.ErrAltered) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.name) || v.Text != "untouched" {
					t.Errorf("%s: %+v, error %v, want %q", test.why, v, err, test.want)
				}
				if wantsForeign := test.why != "one byte changed"; errors.Is(err, repository.ErrForeign) != wantsForeign || wantsForeign && !strings.Contains(err.Error(), "find out who wrote it, then remove it, or trust the key") {
					t.Errorf("%s: error %v", test.why, err)
				}
				if counts, err := r.Counts(ctx, test.name); counts || err != nil {
					t.Errorf("%s: it counts, %v", test.why, err)
				}
			}
			// Without trust everything whole is read, signed or not: also what older versions wrote.
			for _, place := range []string{"good", "unsigned", "stranger", "other repository"} {
				var v body
				if err := open(place, signing.Keys{}).ReadDocument(ctx, name, &v); err != nil || v.Text != "it" {
					t.Errorf("%s, without trust: %+v, %v", place, v, err)
				}
			}
		})
	}
}

// ssh-keygen judges a document of every kind as Trust does: docs/format.md gives the line
// that is signed.
func TestSSHKeygenAgrees(t *testing.T) {
	keygen := storetest.Program(t, "ssh-keygen")
	key, public := keyPair(t)
	_, stranger := keyPair(t)
	trust, strangers := textFile(t, "ops "+public), textFile(t, "ops "+stranger)
	past, revoked := textFile(t, `ops valid-before="20200101Z" `+public), textFile(t, public)
	repo, err := repository.Init(t.Context(), repository.WithKeys(sinktest.NewMemory(), readKeys(t, key, "")), time.Now())
	require.NoError(t, err)
	namespaces := map[string]string{"merged": "segment", "pruned log": "pruned", "failed job": "job", "other kinds": "pin"}
	for kind, names := range kinds {
		t.Run(kind, func(t *testing.T) {
			name, kind := names[0], cmp.Or(namespaces[kind], kind)
			data, err := repo.Seal(name, struct{ Text string }{"it"})
			require.NoError(t, err)
			var doc struct{ SHA256, Signed, Signature string }
			head, _, _ := strings.Cut(string(data), "\n")
			require.NoError(t, json.Unmarshal([]byte(strings.TrimSuffix(head, ",")+"}"), &doc))
			sum := sha256.Sum256(data[len(head)+len("\n\"body\":\n") : len(data)-len("\n}\n")])
			require.Equal(t, hex.EncodeToString(sum[:]), doc.SHA256)
			armoured := textFile(t, "-----BEGIN SSH SIGNATURE-----\n"+doc.Signature+"\n-----END SSH SIGNATURE-----\n")
			changed := strings.Replace(doc.SHA256, doc.SHA256[:1], "g", 1)
			for _, test := range []struct {
				why, sum, repository, name, kind, trust string
				more                                    []string
			}{
				{"good", doc.SHA256, repo.ID(), name, kind, trust, nil},
				{"by a stranger", doc.SHA256, repo.ID(), name, kind, strangers, nil},
				{"revoked", doc.SHA256, repo.ID(), name, kind, trust, []string{"-r", revoked}},
				{"outside its validity", doc.SHA256, repo.ID(), name, kind, past, nil},
				{"moved from another repository", doc.SHA256, strings.Repeat("0", 32), name, kind, trust, nil},
				{"moved from another name", doc.SHA256, repo.ID(), names[1], kind, trust, nil},
				{"moved from another kind", doc.SHA256, repo.ID(), name, "canary", trust, nil},
				{"changed", changed, repo.ID(), name, kind, trust, nil},
			} {
				cmd := exec.Command(keygen, append([]string{"-Y", "verify", "-f", test.trust, "-I", "ops", "-n", "requorum-" + test.kind, "-s", armoured}, test.more...)...)
				cmd.Stdin = strings.NewReader(test.sum + " " + test.repository + " " + test.name + " " + doc.Signed + "\n")
				if out, err := cmd.CombinedOutput(); (err == nil) != (test.why == "good") {
					t.Errorf("%s: %v, %s", test.why, err, out)
				}
			}
		})
	}
}

// resealed is a signed document with another body, and that one's sum.
func resealed(t *testing.T, signed, unsigned []byte, from, to string) []byte {
	t.Helper()
	var v struct{ Text string }
	require.NoError(t, repository.Unseal(unsigned, &v))
	v.Text = strings.Trim(to, `"`)
	other, err := repository.Seal(v)
	require.NoError(t, err)
	sum := func(doc []byte) []byte { return doc[len(`{"sha256": "`):][:64] }
	changed := bytes.Replace(signed, []byte(from), []byte(to), 1)
	return bytes.Replace(changed, sum(signed), sum(other), 1)
}

// Of the marks of an idle cluster few are read: the first and the last of each member at
// each index, and what foreign ones lie outside of these.
func TestMarksOfAnIdleCluster(t *testing.T) {
	ctx := t.Context()
	keys := sinktest.NewKeys(t)
	place, own, other := ownAndForeign(t, keys)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	mark := func(r *repository.Repository, index, member uint64, minute int) repository.MarkName {
		n := repository.MarkName{Timeline: signedTimeline, Index: index, Time: start.Add(time.Duration(minute) * time.Minute), Member: member}
		require.NoError(t, r.WriteDocument(ctx, n.String(), struct{}{}))
		return n
	}
	var want []repository.MarkName
	const minutes = 200
	for index := uint64(7); index < 9; index++ {
		for minute := range minutes {
			for member := uint64(1); member < 4; member++ {
				want = append(want, mark(own, index, member, 1000*int(index)+minute))
			}
		}
	}
	// A single foreign one outside at each end, and of an index and a member of its own.
	mark(other, 7, 1, 0)
	mark(other, 8, 2, 1<<20)
	mark(other, 9, 1, 8000)
	mark(other, 8, 4, 8000)
	counted := sinktest.NewFaulty(place)
	reader, err := repository.Open(ctx, repository.WithKeys(counted, keys))
	require.NoError(t, err)
	before := counted.Calls(sinktest.Open)
	got, err := reader.Marks(ctx, signedTimeline)
	require.NoError(t, err)
	require.Equal(t, want, got)
	if n := counted.Calls(sinktest.Open) - before; n != 2*2*3+4 {
		t.Errorf("%d marks of %d were read", n, len(want)+4)
	}
}

// However many timelines and full snapshots somebody else adds, before and after: who
// checks signatures finds those that count.
func TestForeignFlood(t *testing.T) {
	ctx := t.Context()
	_, own, other := ownAndForeign(t, sinktest.NewKeys(t))
	backup := func(n int) string { return fmt.Sprintf("20260102T150405Z-%06x", n) }
	write := func(r *repository.Repository, n int) {
		id := repository.TimelineID{ClusterID: 0xab, N: n}
		require.NoError(t, r.OpenTimeline(ctx, repository.Timeline{ID: id}))
		require.NoError(t, r.WriteDocument(ctx, repository.ManifestName(signedTimeline, backup(n)), struct{}{}))
	}
	const some = repository.MaxTimelines
	for n := range some {
		write(other, 2+n)
	}
	write(own, 2+some)
	for n := range some {
		write(other, 3+some+n)
	}
	ids, more, err := own.ListTimelines(ctx)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, []repository.TimelineID{{ClusterID: 0xab, N: 2 + some}, signedTimeline}, []repository.TimelineID{ids[len(ids)-1], ids[0]})
	newest, err := own.NewestFulls(ctx, signedTimeline, 3)
	require.NoError(t, err)
	require.Len(t, newest, 1)
	require.Equal(t, backup(2+some), newest[0].ID)
}

// A timeline with a full snapshot of one's own is there, whoever wrote its descriptor, and
// without one: else that one object stopped all backups of its cluster.
func TestForeignDescriptor(t *testing.T) {
	ctx := t.Context()
	_, own, other := ownAndForeign(t, sinktest.NewKeys(t))
	require.NoError(t, own.WriteDocument(ctx, repository.ManifestName(signedTimeline, signedBackup), struct{}{}))
	require.NoError(t, other.WriteDocument(ctx, repository.ManifestName(otherTimeline, signedBackup), struct{}{}))
	want := []repository.TimelineID{signedTimeline}
	ids, err := own.TimelineIDs(ctx)
	require.NoError(t, err)
	require.Equal(t, want, ids, "without a descriptor")
	require.NoError(t, other.OpenTimeline(ctx, repository.Timeline{ID: signedTimeline}))
	require.NoError(t, other.OpenTimeline(ctx, repository.Timeline{ID: otherTimeline}))
	ids, err = own.TimelineIDs(ctx)
	require.NoError(t, err)
	require.Equal(t, want, ids, "with a foreign one")
}

// What nobody who is trusted wrote does not exist for what is made of names.
func TestForeignNames(t *testing.T) {
	ctx := t.Context()
	place, own, other := ownAndForeign(t, sinktest.NewKeys(t))
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	slot := "20260102T010000Z"
	must(own.OpenTimeline(ctx, repository.Timeline{ID: signedTimeline}))
	must(other.OpenTimeline(ctx, repository.Timeline{ID: otherTimeline}))
	for n := range 3 {
		must(other.WriteDocument(ctx, repository.SupersededName(signedTimeline, n+1), repository.Superseded{Format: 1, Timeline: signedTimeline, By: otherTimeline}))
	}
	_, err := sinks.Put(ctx, place, repository.SupersededName(signedTimeline, 4), []byte("junk"), sinks.CreateOptions{})
	must(err)
	must(other.RecordPruned(ctx, repository.Pruned{Timeline: signedTimeline, Backup: signedBackup}))
	must(other.RecordPrunedLog(ctx, repository.PrunedLog{Timeline: signedTimeline, Index: 1 << 40}))
	for _, attempt := range []int{1, 3} {
		must(other.WriteClaim(ctx, repository.Claim{Job: "full", Slot: slot, Attempt: attempt}))
	}
	must(other.WriteJobResult(ctx, repository.JobResult{Job: "full", Slot: slot, OK: true}))

	if ids, err := own.TimelineIDs(ctx); err != nil || len(ids) != 1 || ids[0] != signedTimeline {
		t.Errorf("timelines %v, %v", ids, err)
	}
	if id, err := own.FreeTimeline(ctx, otherTimeline); err != nil || id.N != 3 {
		t.Errorf("free is %v, %v", id, err)
	}
	if _, ended, err := own.Superseded(ctx, signedTimeline); ended || err != nil {
		t.Errorf("it has ended, %v", err)
	}
	if _, ended, err := other.Superseded(ctx, signedTimeline); !ended || err != nil {
		t.Errorf("without trust it has not ended, %v", err)
	}
	if names, err := own.PrunedNames(ctx); err != nil || len(names) != 0 {
		t.Errorf("pruned %v, %v", names, err)
	}
	if names, err := own.PrunedLogs(ctx, signedTimeline); err != nil || len(names) != 0 {
		t.Errorf("pruned logs %v, %v", names, err)
	}
	if s, err := own.ReadSlot(ctx, "full", slot); err != nil || s != (repository.SlotState{Next: 2}) {
		t.Errorf("slot %+v, %v", s, err)
	}
	if names, _ := own.Foreign(); len(names) < 7 {
		t.Errorf("foreign: %v", names)
	}

	// The real mark comes behind the forged ones, and counts.
	must(own.Supersede(ctx, repository.Superseded{Timeline: signedTimeline, By: repository.TimelineID{ClusterID: 0xcd, N: 1}}))
	if s, ended, err := own.Superseded(ctx, signedTimeline); !ended || err != nil || s.By.ClusterID != 0xcd {
		t.Errorf("%+v, %v, %v", s, ended, err)
	}
	// Without end they are not followed, and keep nobody from the timeline: whoever writes
	// refuses to go behind them, so no real one is there.
	for n := 5; n < 80; n++ {
		_, err := sinks.Put(ctx, place, repository.SupersededName(otherTimeline, n-4), []byte("junk"), sinks.CreateOptions{})
		must(err)
	}
	if _, ended, err := own.Superseded(ctx, otherTimeline); ended || err != nil {
		t.Errorf("ended: %v, %v", ended, err)
	}
	require.ErrorContains(t, own.Supersede(ctx, repository.Superseded{Timeline: otherTimeline, By: signedTimeline}), "more than 64 marks")
}

// Forged full snapshots with the newest IDs do not stand for the newest state.
func TestNewestFullsAreOwn(t *testing.T) {
	ctx := t.Context()
	_, own, other := ownAndForeign(t, sinktest.NewKeys(t))
	for n := range 20 {
		by := other
		if n == 3 || n == 5 {
			by = own
		}
		id := fmt.Sprintf("20260102T1504%02dZ-3f9a2c", n)
		require.NoError(t, by.WriteDocument(ctx, repository.ManifestName(signedTimeline, id), struct{}{}))
	}
	fulls, err := own.NewestFulls(ctx, signedTimeline, 4)
	if err != nil || len(fulls) != 2 || fulls[1].ID != "20260102T150405Z-3f9a2c" {
		t.Errorf("%+v, %v", fulls, err)
	}
	if fulls, err := other.NewestFulls(ctx, signedTimeline, 4); err != nil || len(fulls) != 4 || fulls[3].ID != "20260102T150419Z-3f9a2c" {
		t.Errorf("without trust %+v, %v", fulls, err)
	}
}

// What a key may not sign, by whom the writer trusts itself, is not written: it would be
// foreign to its own writer.
func TestNotWrittenForOthers(t *testing.T) {
	ctx := t.Context()
	key, public := keyPair(t)
	trust := textFile(t, `ops namespaces="requorum-repository,requorum-timeline" `+public)
	own, err := repository.Init(ctx, repository.WithKeys(sinktest.NewMemory(), readKeys(t, key, trust)), time.Now())
	require.NoError(t, err)
	require.NoError(t, own.OpenTimeline(ctx, repository.Timeline{ID: signedTimeline}))
	err = own.RecordPrunedLog(ctx, repository.PrunedLog{Timeline: signedTimeline, Index: 7})
	require.ErrorContains(t, err, "may not sign requorum-pruned")
	if names, err := own.PrunedLogs(ctx, signedTimeline); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

// Nothing unsigned is written where it would be foreign, and nothing is signed or
// checked where the repository's ID is lost.
func TestKeysNeedARepository(t *testing.T) {
	ctx := t.Context()
	key, public := keyPair(t)
	trust := textFile(t, "ops "+public)
	place := sinktest.NewMemory()
	own, err := repository.Init(ctx, repository.WithKeys(place, readKeys(t, key, trust)), time.Now())
	if err == nil {
		err = own.OpenTimeline(ctx, repository.Timeline{ID: signedTimeline})
	}
	require.NoError(t, err)
	reader := repository.WithKeys(place, readKeys(t, "", trust))
	r, err := repository.Open(ctx, reader)
	require.NoError(t, err)
	require.ErrorContains(t, r.OpenTimeline(ctx, repository.Timeline{ID: otherTimeline}), "--signing-key")
	require.NoError(t, place.Delete(context.Background(), repository.MarkerName))
	_, err = repository.Open(ctx, reader)
	require.ErrorContains(t, err, "--insecure-unsigned")
	_, err = repository.Init(ctx, repository.WithKeys(place, readKeys(t, key, "")), time.Now())
	require.ErrorContains(t, err, "put it back from a copy")
	if r, err := repository.Open(ctx, place); err != nil || r.Damage() == nil {
		t.Errorf("without keys it is not opened: %v", err)
	}
}

// Keys go with a sink: whatever wraps one has to give it, or nothing would be signed and
// checked behind it.
func TestWrappersUnwrap(t *testing.T) {
	embeds := regexp.MustCompile(`(?m)^\t(sinks\.)?Sink$`)
	unwraps := regexp.MustCompile(`\) Unwrap\(\) (sinks\.)?Sink`)
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "../.." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil && embeds.Match(data) {
			if seen++; len(embeds.FindAll(data, -1)) > len(unwraps.FindAll(data, -1))+strings.Count(path, "signed.go") {
				t.Errorf("%s: a sink within another one has no Unwrap", path)
			}
		}
		return err
	})
	if err != nil || seen < 5 {
		t.Errorf("%d files, %v", seen, err)
	}
}
