package verifytest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// flip flips a bit of an object: of the byte at, from the end where negative.
func flip(name func(testing.TB, *Repo) string, at int) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		name := name(t, r)
		data := r.Read(t, name)
		if at < 0 {
			at += len(data)
		}
		data[at] ^= 4
		r.Write(t, name, data)
		return fmt.Sprintf("byte %d of %s", at, name)
	}
}

// resize cuts an object by n bytes, or lets it grow.
func resize(name func(testing.TB, *Repo) string, n int) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		name := name(t, r)
		data := r.Read(t, name)
		if n < 0 {
			data = data[:len(data)+n]
		} else {
			data = append(data, make([]byte, n)...)
		}
		r.Write(t, name, data)
		return fmt.Sprintf("%s by %d bytes", name, n)
	}
}

func remove(name func(testing.TB, *Repo) string) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		name := name(t, r)
		r.Remove(t, name)
		return name
	}
}

func empty(name func(testing.TB, *Repo) string) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		name := name(t, r)
		r.Write(t, name, nil)
		return name
	}
}

func theSnapshot(_ testing.TB, r *Repo) string { return r.Object(last) }
func theManifest(_ testing.TB, r *Repo) string { return r.ManifestName(last) }

func only(form Form, f Fault) Fault { f.Only = form; return f }

// objectFaults are in the bytes of snapshot.zst.
func objectFaults() []Fault {
	return []Fault{
		only(Plain, checksum("snapshot: a bit flipped in a frame's header", flip(theSnapshot, 5), report.KindObject)),
		only(Plain, checksum("snapshot: a bit flipped in a frame", flip(theSnapshot, 300), report.KindObject)),
		only(Plain, checksum("snapshot: a bit flipped in the seek table", flip(theSnapshot, -14), report.KindObject)),
		only(Plain, checksum("snapshot: a bit flipped in the seek table's end", flip(theSnapshot, -1), report.KindObject)),
		only(Encrypted, checksum("snapshot: a bit flipped in the age header", flip(theSnapshot, 60), report.KindObject)),
		only(Encrypted, checksum("snapshot: a bit flipped in the age header's MAC", flip(theSnapshot, 190), report.KindObject)),
		only(Encrypted, checksum("snapshot: a bit flipped in the age body", flip(theSnapshot, 900), report.KindObject)),
		only(Encrypted, checksum("snapshot: a bit flipped in the last age chunk", flip(theSnapshot, -3), report.KindObject)),
		checksum("snapshot: cut", resize(theSnapshot, -1000), report.KindSize),
		checksum("snapshot: bytes appended", resize(theSnapshot, 100), report.KindSize),
		checksum("snapshot: empty", empty(theSnapshot), report.KindSize),
		checksum("snapshot: gone", remove(theSnapshot), report.KindMissing),
		checksum("snapshot: another one of the same length", sameLength, report.KindObject),
		checksum("snapshot: etcd's SHA-256 behind the database is wrong", wrongTrailer, report.KindObject),
		checksum("snapshot: the database's SHA-256 in the manifest is wrong", wrongDatabaseSum, report.KindObject),
	}
}

// sameLength stores another database, with a frame to be skipped behind it that
// makes up for the length.
func sameLength(t testing.TB, r *Repo) string {
	name := r.Object(last)
	length := len(r.Read(t, name))
	database := r.Database(t, last)
	const header = 8
	for keep := len(database); keep > 0; keep /= 2 {
		object, _ := r.encodeObject(t, database[:keep])
		if len(object)+header > length {
			continue
		}
		skipped := make([]byte, length-len(object))
		binary.LittleEndian.PutUint32(skipped, 0x184D2A50)
		binary.LittleEndian.PutUint32(skipped[4:], uint32(len(skipped)-header))
		r.Write(t, name, append(object, skipped...))
		return fmt.Sprintf("%s holds the first %d bytes", name, keep)
	}
	t.Fatal("no length fits")
	return ""
}

func wrongTrailer(t testing.TB, r *Repo) string {
	m := r.Manifest(t, last)
	raw := append(bytes.Clone(r.Database(t, last)), make([]byte, 32)...)
	r.ForgetVerdicts(t)
	r.storeObject(t, m, raw)
	return "zeros, in " + m.Object.Name
}

func wrongDatabaseSum(t testing.TB, r *Repo) string {
	Reseal(t, r, r.ManifestName(last), func(m *snapshot.Manifest) {
		m.DatabaseSHA256 = r.Manifest(t, before).DatabaseSHA256
	})
	return "that of the backup before"
}

// documentFaults are in small documents: each has a sum of its own.
func documentFaults() []Fault {
	one := func(prefix func(*Repo) string) func(testing.TB, *Repo) string {
		return func(t testing.TB, r *Repo) string {
			names := r.Names(t, prefix(r))
			if len(names) == 0 {
				t.Fatalf("nothing begins with %s", prefix(r))
			}
			return names[0]
		}
	}
	folder := func(name string) func(testing.TB, *Repo) string {
		return one(func(r *Repo) string { return r.Timeline.String() + "/" + name })
	}
	descriptor := func(_ testing.TB, r *Repo) string { return "timelines/" + r.Timeline.String() + ".json" }
	verdict := func(n uint64) func(testing.TB, *Repo) string {
		return func(testing.TB, *Repo) string { return repository.VerdictName(n) }
	}
	marker := func(testing.TB, *Repo) string { return "requorum.json" }
	return []Fault{
		checksum("manifest: a bit flipped", flip(theManifest, 400), report.KindManifest),
		checksum("manifest: a bit flipped in its sum", flip(theManifest, 20), report.KindManifest),
		checksum("manifest: cut", resize(theManifest, -200), report.KindManifest),
		checksum("manifest: bytes appended", resize(theManifest, 10), report.KindManifest),
		checksum("manifest: empty", empty(theManifest), report.KindManifest),
		checksum("marker: a bit flipped", flip(marker, 100), report.KindMarker),
		checksum("timeline's descriptor: a bit flipped", flip(descriptor, 120), report.KindTimeline),
		checksum("timeline's descriptor: gone", remove(descriptor), report.KindTimeline),
		checksum("alive mark: a bit flipped", flip(folder("marks/"), 120), report.KindMark),
		checksum("gap record: a bit flipped", flip(folder("gaps/"), 120), report.KindMark),
		checksum("superseded mark: a bit flipped", flip(folder("superseded.json"), 120), report.KindMark),
		checksum("claim: a bit flipped", flip(one(func(*Repo) string { return "claims/" }), 120), report.KindClaim),
		checksum("verdict: a bit flipped", flip(verdict(2), 400), report.KindVerdict),
		checksum("verdict: gone from the middle", remove(verdict(2)), report.KindVerdict),
		checksum("verdict: altered and sealed anew", resealedVerdict, report.KindVerdict),
		checksum("verdict: copied to another number", func(t testing.TB, r *Repo) string {
			r.Write(t, repository.VerdictName(2), r.Read(t, repository.VerdictName(3)))
			return "the third one in the place of the second"
		}, report.KindVerdict),
	}
}

// resealedVerdict says that something else was looked at.
func resealedVerdict(t testing.TB, r *Repo) string {
	name := repository.VerdictName(2)
	data := bytes.ReplaceAll(r.Read(t, name), []byte(`"checksum"`), []byte(`"drill"`))
	from, to := bytes.Index(data, []byte("\"body\":\n"))+len("\"body\":\n"), len(data)-len("\n}\n")
	r.Write(t, name, sealed(data[from:to]))
	return name + " claims a drill"
}
