package verifytest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// swap exchanges two objects.
func swap(t testing.TB, r *Repo, a, b string) {
	t.Helper()
	dataA, dataB := r.Read(t, a), r.Read(t, b)
	r.Write(t, a, dataB)
	r.Write(t, b, dataA)
}

// swappedFaults: each object is whole, and none is in its place.
func swappedFaults() []Fault {
	return []Fault{
		checksum("the snapshots of two backups swapped", func(t testing.TB, r *Repo) string {
			swap(t, r, r.Object(before), r.Object(last))
			return "snapshots"
		}, report.KindSize, report.KindObject),
		checksum("the manifests of two backups swapped", func(t testing.TB, r *Repo) string {
			swap(t, r, r.ManifestName(before), r.ManifestName(last))
			return "manifests"
		}, report.KindManifest),
		checksum("the folders of two backups swapped", func(t testing.TB, r *Repo) string {
			swap(t, r, r.ManifestName(before), r.ManifestName(last))
			swap(t, r, r.Object(before), r.Object(last))
			return "folders"
		}, report.KindManifest),
		checksum("a manifest of another backup", func(t testing.TB, r *Repo) string {
			r.Write(t, r.ManifestName(last), r.Read(t, r.ManifestName(before)))
			return "manifest"
		}, report.KindManifest),
		checksum("a manifest of another backup, with its own ID put in", func(t testing.TB, r *Repo) string {
			r.ForgetVerdicts(t)
			r.Write(t, r.ManifestName(last), r.Read(t, r.ManifestName(before)))
			Reseal(t, r, r.ManifestName(last), func(m *snapshot.Manifest) { m.ID, m.Object.Name = r.Backups[last], r.Object(last) })
			return "manifest"
		}, report.KindSize, report.KindObject),
		checksum("a manifest of another cluster's repository", func(t testing.TB, r *Repo) string {
			Reseal(t, r, r.ManifestName(last), func(m *snapshot.Manifest) {
				m.Timeline.ClusterID++
				m.Object.Name = repository.SnapshotName(m.Timeline, m.ID, r.Encrypted())
			})
			return "manifest"
		}, report.KindManifest),
		checksum("a manifest that describes another object", func(t testing.TB, r *Repo) string {
			Reseal(t, r, r.ManifestName(last), func(m *snapshot.Manifest) { m.Object.Name = r.Object(before) })
			return "manifest"
		}, report.KindManifest),
		checksum("a timeline's descriptor of another timeline", func(t testing.TB, r *Repo) string {
			other := repository.TimelineID{ClusterID: r.Timeline.ClusterID, N: r.Timeline.N + 1}
			r.Write(t, "timelines/"+r.Timeline.String()+".json", r.Read(t, "timelines/"+other.String()+".json"))
			return "descriptor"
		}, report.KindTimeline),
		checksum("a timeline's descriptor that names itself as its parent", func(t testing.TB, r *Repo) string {
			Reseal(t, r, "timelines/"+r.Timeline.String()+".json", func(l *repository.Timeline) {
				l.Parent = &repository.Branch{Timeline: r.Timeline}
			})
			return "descriptor"
		}, report.KindTimeline),
		checksum("an alive mark under another name", func(t testing.TB, r *Repo) string {
			names := r.Names(t, r.Timeline.String()+"/marks/")
			r.Write(t, names[0], r.Read(t, names[1]))
			return names[0]
		}, report.KindMark),
		checksum("an alive mark that names another term", func(t testing.TB, r *Repo) string {
			name := r.Names(t, r.Timeline.String()+"/marks/")[0]
			Reseal(t, r, name, func(m *map[string]json.RawMessage) { (*m)["term"] = json.RawMessage("99") })
			return name
		}, report.KindMark),
		checksum("a superseded mark of another timeline", func(t testing.TB, r *Repo) string {
			Reseal(t, r, repository.SupersededName(r.Timeline), func(s *repository.Superseded) { s.Timeline.N += 5 })
			return "superseded.json"
		}, report.KindMark),
		checksum("a claim under another name", func(t testing.TB, r *Repo) string {
			name := r.Names(t, "claims/")[0]
			r.Write(t, string(bytes.Replace([]byte(name), []byte("merge"), []byte("snapshot"), 1)), r.Read(t, name))
			return name
		}, report.KindClaim),
	}
}

// knownFaults are fixed up in every sum, but a verdict had seen what was there.
func knownFaults() []Fault {
	keepVerdicts := func(inject func(testing.TB, *Repo) string) func(testing.TB, *Repo) string {
		return func(t testing.TB, r *Repo) string {
			verdicts := map[string][]byte{}
			for _, name := range r.Names(t, "verdicts/") {
				verdicts[name] = r.Read(t, name)
			}
			what := inject(t, r)
			for name, data := range verdicts {
				r.Write(t, name, data)
			}
			return what
		}
	}
	return []Fault{
		checksum("a manifest gone, whose backup a verdict had seen", remove(theManifest), report.KindMissing),
		checksum("a value altered with every sum fixed up, in a backup that a verdict had seen", keepVerdicts(alteredValue), report.KindManifest),
		checksum("a log entry altered with every sum fixed up, in a log that a verdict had seen", keepVerdicts(alteredEntry), report.KindFork),
		checksum("the last segment gone, which a verdict had seen", func(t testing.TB, r *Repo) string {
			names := r.Segments(t, 0)
			r.Remove(t, names[len(names)-1])
			return names[len(names)-1]
		}, report.KindGap),
		checksum("a log entry altered with every sum fixed up, before a timeline that branched off", func(t testing.TB, r *Repo) string {
			entries := r.Log(t)
			entries[branchIndex-3].Data = entries[branchIndex-2].Data
			r.ForgetVerdicts(t)
			r.WriteLog(t, entries, segmentEntries)
			return "an entry"
		}, report.KindFork),
	}
}
