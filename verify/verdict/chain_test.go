package verdict

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
)

// Promise 2 of the package: what is done to a chain of five verdicts, and what
// is found. No fault hides a verdict that is whole.
func TestChainDamage(t *testing.T) {
	public, key := newKey(t)
	_, other := newKey(t)
	// altered is verdict n with another content and a sum that fits it.
	altered := func(t *testing.T, s *sinktest.Memory, n uint64, by ed25519.PrivateKey) []byte {
		v, _, err := parse(get(t, s, n))
		if err != nil {
			t.Fatal(err)
		}
		v.Tool = "another"
		data, err := encode(v, by)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, test := range []struct {
		name     string
		do       func(t *testing.T, s *sinktest.Memory)
		found    string // without trusted keys, and with
		counting string
		trusted  string // those that count with the key trusted
	}{
		{"nothing", func(*testing.T, *sinktest.Memory) {}, "", "1 2 3 4 5", "1 2 3 4 5"},
		{"a bit flipped", func(t *testing.T, s *sinktest.Memory) {
			data := get(t, s, 3)
			data[len(data)/2] ^= 4
			replace(t, s, 3, data)
		}, "3", "1 2 4 5", "1 2 4 5"},
		{"cut short", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, get(t, s, 3)[:100]) }, "3", "1 2 4 5", "1 2 4 5"},
		{"empty", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, []byte{}) }, "3", "1 2 4 5", "1 2 4 5"},
		{"far too big", func(t *testing.T, s *sinktest.Memory) {
			replace(t, s, 3, bytes.Repeat([]byte(" "), repository.VerdictLimit+1))
		}, "3", "1 2 4 5", "1 2 4 5"},
		{"no verdict at all", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, []byte("{}")) }, "3", "1 2 4 5", "1 2 4 5"},
		{"altered, sealed anew, signature gone", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, altered(t, s, 3, nil)) }, "3", "1 2 4 5", "1 2 4 5"},
		{"altered, signed by another key", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, altered(t, s, 3, other)) }, "3", "1 2 4 5", "1 2 4 5"},
		{"missing from the middle", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, nil) }, "3", "1 2 4 5", "1 2 4 5"},
		{"two missing", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 3, nil); replace(t, s, 4, nil) }, "3", "1 2 5", "1 2 5"},
		{"two damaged, one missing", func(t *testing.T, s *sinktest.Memory) {
			replace(t, s, 2, []byte("{"))
			replace(t, s, 3, nil)
			replace(t, s, 5, []byte("}"))
		}, "2 3 5", "1 4", "1 4"},
		{"two exchanged", func(t *testing.T, s *sinktest.Memory) {
			two, three := get(t, s, 2), get(t, s, 3)
			replace(t, s, 2, three)
			replace(t, s, 3, two)
		}, "2 3", "1 4 5", "1 4 5"},
		{"one copied behind the last", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 6, get(t, s, 2)) }, "6", "1 2 3 4 5", "1 2 3 4 5"},
		{"the beginning pruned", func(t *testing.T, s *sinktest.Memory) { replace(t, s, 1, nil); replace(t, s, 2, nil) }, "", "3 4 5", "3 4 5"},
		{"all but the last pruned", func(t *testing.T, s *sinktest.Memory) {
			for n := range uint64(4) {
				replace(t, s, n+1, nil)
			}
		}, "", "5", "5"},
		{"the first one follows another", func(t *testing.T, s *sinktest.Memory) {
			v, _, err := parse(get(t, s, 1))
			if err != nil {
				t.Fatal(err)
			}
			v.Previous[0] = 1
			data, err := encode(v, nil)
			if err != nil {
				t.Fatal(err)
			}
			for n := range uint64(4) {
				replace(t, s, n+2, nil)
			}
			replace(t, s, 1, data)
		}, "1", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, repo, _ := filled(t, key)
			test.do(t, s)
			for _, trusted := range [][]ed25519.PublicKey{nil, {public}} {
				c := readAll(t, repo, trusted...)
				want := test.counting
				if len(trusted) > 0 {
					want = test.trusted
				}
				if objects(c) != test.found || counting(c) != want {
					t.Errorf("with %d trusted keys: found in %q, want %q; %q count, want %q\n%v", len(trusted), objects(c), test.found, counting(c), want, c.Findings)
				}
				check := c.Check()
				if (check.Status == report.Damaged) != (test.found != "") || check.Rung != report.Checksum || check.Bytes == 0 {
					t.Errorf("the check is %+v", check)
				}
			}
		})
	}
}

// A signature is only worth something to who trusts the key.
func TestSignatures(t *testing.T) {
	public, key := newKey(t)
	otherPublic, other := newKey(t)
	_, repo, m := filled(t, key)
	write(t, repo, nil, verdictOn(m, report.Drill, report.Passed))
	write(t, repo, other, verdictOn(m, report.Drill, report.Passed))
	for _, test := range []struct {
		name    string
		trusted []ed25519.PublicKey
		count   string
		rung    report.Rung
		notes   int
	}{
		{"no key given", nil, "1 2 3 4 5 6 7", report.Drill, 0},
		{"the first one's", []ed25519.PublicKey{public}, "1 2 3 4 5", report.Structure, 1},
		{"the other one's", []ed25519.PublicKey{otherPublic}, "7", report.Drill, 1},
		{"both", []ed25519.PublicKey{public, otherPublic}, "1 2 3 4 5 7", report.Drill, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := readAll(t, repo, test.trusted...)
			s, ok := c.Best(m)
			if counting(c) != test.count || !ok || s.Reached != test.rung || len(c.Notes) != test.notes || len(c.Findings) > 0 {
				t.Errorf("%q count, proved: %s, notes %q, findings %v", counting(c), s.Reached, c.Notes, c.Findings)
			}
		})
	}
	stranger, _ := newKey(t)
	if _, ok := readAll(t, repo, stranger).Best(m); ok {
		t.Error("proved by a key that nobody trusts")
	}
}

// A signature in the name of a trusted key that the key did not make is damage:
// of the content, or of the signature.
func TestForgedSignature(t *testing.T) {
	public, key := newKey(t)
	for _, forge := range []func(*envelope){
		func(e *envelope) { e.Signature.Ed25519[5] ^= 1 },
		func(e *envelope) { e.Signature.Ed25519 = nil },
		func(e *envelope) { e.Signed = bytes.Replace(e.Signed, []byte(`"structure"`), []byte(`"drill"`), 1) },
		func(e *envelope) { e.Signature.Ed25519 = make([]byte, ed25519.SignatureSize) },
	} {
		s, repo, _ := filled(t, key)
		_, e, err := parse(get(t, s, 5))
		if err != nil {
			t.Fatal(err)
		}
		forge(&e)
		data, err := repository.Seal(e)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(data, get(t, s, 5)) {
			t.Fatal("nothing was forged")
		}
		replace(t, s, 5, data)
		if c := readAll(t, repo, public); objects(c) != "5" || counting(c) != "1 2 3 4" {
			t.Errorf("found in %q, %q count", objects(c), counting(c))
		}
	}
}

// What a trusted key signed counts though an unsigned verdict behind it says
// that another was there: whoever can write could say so.
func TestSlandered(t *testing.T) {
	public, key := newKey(t)
	s, repo, m := filled(t, key)
	v := verdictOn(m, report.Checksum, report.Damaged)
	v.Format, v.Kind, v.Repository, v.Sequence = format, Kind, repo.ID(), 6
	data, err := encode(v, nil) // its Previous is not the fifth's sum
	if err != nil {
		t.Fatal(err)
	}
	replace(t, s, 6, data)
	c := readAll(t, repo, public)
	if objects(c) != "5" || counting(c) != "1 2 3 4 5" {
		t.Errorf("found in %q, %q count", objects(c), counting(c))
	}
	if _, ok := c.Best(m); !ok {
		t.Error("a verdict that nobody signed took the proof away")
	}
	if c = readAll(t, repo); counting(c) != "1 2 3 4 6" {
		t.Errorf("without keys %q count", counting(c))
	}
}

// A verdict that a newer version wrote is passed over, and no damage; the chain
// goes through it.
func TestNewerFormat(t *testing.T) {
	s, repo, m := filled(t, nil)
	_, e, err := parse(get(t, s, 5))
	if err != nil {
		t.Fatal(err)
	}
	e.Signed = bytes.Replace(e.Signed, []byte(`"format": 1`), []byte(`"format": 2`), 1)
	data, err := repository.Seal(e)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, s, 5, data)
	write(t, repo, nil, verdictOn(m, report.Structure, report.Passed))
	c := readAll(t, repo)
	if objects(c) != "" || counting(c) != "1 2 3 4 6" || len(c.Notes) != 1 || !errors.Is(c.Entries[4].Err, snapshot.ErrNewerFormat) {
		t.Errorf("found in %q, %q count, %q", objects(c), counting(c), c.Notes)
	}
	replace(t, s, 5, append(data[:len(data):len(data)], '\n'))
	if c := readAll(t, repo); objects(c) != "5" {
		t.Errorf("found in %q", objects(c))
	}
}

// A verdict of another repository says nothing about this one.
func TestForeignVerdict(t *testing.T) {
	s, _, _ := filled(t, nil)
	other := sinktest.NewMemory()
	repo := newRepo(t, other)
	replace(t, other, 1, get(t, s, 1))
	if c := readAll(t, repo); objects(c) != "1" || counting(c) != "" {
		t.Errorf("found in %q, %q count", objects(c), counting(c))
	}
}

// Fields that a later minor version adds do not keep anybody from reading, and
// nothing may stand outside the part that is signed.
func TestUnknownFields(t *testing.T) {
	s, _, _ := filled(t, nil)
	_, e, err := parse(get(t, s, 1))
	if err != nil {
		t.Fatal(err)
	}
	e.Signed = append(e.Signed[:len(e.Signed)-1:len(e.Signed)-1], []byte(`,"later":1}`)...)
	data, err := repository.Seal(e)
	if err != nil {
		t.Fatal(err)
	}
	if v, _, err := parse(data); err != nil || v.Sequence != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	outside, err := repository.Seal(map[string]json.RawMessage{"later": []byte("1"), "signed": e.Signed})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := parse(outside); !errors.Is(err, repository.ErrAltered) || !strings.Contains(err.Error(), "around") {
		t.Error(err)
	}
}

// FuzzParse reads arbitrary verdicts in a document whose sum fits. What is read
// is read as the same once written anew.
func FuzzParse(f *testing.F) {
	s, _, _ := filled(f, nil)
	_, e, err := parse(get(f, s, 2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(e.Signed))
	f.Fuzz(func(t *testing.T, signed []byte) {
		if _, _, err := parse(signed); err == nil {
			t.Fatal("a verdict without a sum was read")
		}
		if !json.Valid(signed) {
			return
		}
		data, err := repository.Seal(envelope{Signature: &Signature{}, Signed: signed})
		if err != nil {
			t.Fatal(err)
		}
		v, e, err := parse(data)
		if err != nil {
			return
		}
		if ok, named := e.Signature.by(nil, e.Signed); ok || named {
			t.Fatal("signed by nobody's key")
		}
		again, err := encode(v, nil)
		if err != nil {
			t.Skip() // a time that JSON reads and cannot write
		}
		back, _, err := parse(again)
		if err != nil {
			t.Fatal(err)
		}
		one, errOne := json.Marshal(v)
		two, errTwo := json.Marshal(back)
		if errOne != nil || errTwo != nil || !bytes.Equal(one, two) {
			t.Fatalf("%s\nis written anew as\n%s", one, two)
		}
	})
}

// Arbitrary bodies, with a sum that fits, are refused or read, and nothing else.
func FuzzBody(f *testing.F) {
	_, key := newKey(f)
	s, _, _ := filled(f, key)
	var body json.RawMessage
	if err := repository.Unseal(get(f, s, 2), &body); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(body))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) {
			return
		}
		data, err := repository.Seal(json.RawMessage(body))
		if err != nil {
			t.Fatal(err)
		}
		if v, _, err := parse(data); err == nil && (v.Format != format || v.Kind != Kind) {
			t.Fatalf("%+v", v)
		}
	})
}
