package engine

import (
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// bareV2 is a request as etcd 3.5 logs it: with all fields that are not
// optional, in their order.
func bareV2(method, path, value string, exist bool) []byte {
	var b []byte
	number := func(n protowire.Number, v uint64) {
		b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
	}
	text := func(n protowire.Number, v string) {
		b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	number(1, 1<<60)
	text(2, method)
	text(3, path)
	text(4, value)
	number(5, 0)
	text(6, "")
	number(7, 0)
	if exist {
		number(8, 1)
	}
	for n := protowire.Number(9); n <= 15; n++ {
		number(n, 0)
	}
	number(16, 0)
	return b
}

// wrapped is one inside of an InternalRaftRequest.
func wrapped(v2 []byte) []byte {
	b := protowire.AppendBytes(protowire.AppendTag(nil, fieldV2, protowire.BytesType), v2)
	return protowire.AppendBytes(protowire.AppendTag(b, fieldHeader, protowire.BytesType), []byte{8, 5})
}

// Requests of the v2 API: those that reach the database are applied, in both
// forms; the others are distinguished, and change nothing.
func TestV2Requests(t *testing.T) {
	const attributes = "/0/members/1/attributes"
	for _, form := range []struct {
		name string
		form func([]byte) []byte
	}{{"bare", func(b []byte) []byte { return b }}, {"wrapped", wrapped}} {
		t.Run(form.name, func(t *testing.T) {
			log := func(requests ...[]byte) []any {
				all := []any{change(t, raftpb.ConfChangeAddNode, 1, false)}
				for _, r := range requests {
					all = append(all, form.form(r))
				}
				return all
			}
			entries := logOf(t, 1, log(
				bareV2("PUT", attributes, `{"name":"one","clientURLs":["http://c"]}`, false),
				bareV2("PUT", "/0/version", "3.5.0", false),
				bareV2("SYNC", "", "", false),
				bareV2("PUT", "/1/user", "data", false),
				bareV2("DELETE", attributes, "", false),
				bareV2("PUT", attributes, `{"name":"two"}`, true), // conditional
			)...)
			for i, want := range []string{KindConfChange, "v2-put", "v2-put", "v2-sync", "v2-put", "v2-delete", "v2-put"} {
				if kind, err := Kind(entries[i]); kind != want || err != nil {
					t.Errorf("entry %d is %s (%v), want %s", i+1, kind, err, want)
				}
			}
			got := replayed(t, empty(t), Options{}, entries)
			if member := string(got["members"]["1"]); !strings.Contains(member, `"name":"one"`) || !strings.Contains(member, "http://c") {
				t.Errorf("the member is %s", member)
			}
			if version := string(got["cluster"]["clusterVersion"]); version != "3.5.0" {
				t.Errorf("the cluster's version is %s", version)
			}
			if len(got["key"]) != 0 {
				t.Error("keys were written")
			}
			for name, bad := range map[string][]byte{
				"a value": bareV2("PUT", attributes, "{", false), "a version": bareV2("PUT", "/0/version", "x", false),
			} {
				e := open(t, empty(t), Options{})
				applyAll(t, e, entries[:1])
				if err := e.Apply(logOf(t, 2, form.form(bad))[0]); err == nil {
					t.Errorf("%s that is none was taken", name)
				}
			}
		})
	}
}

// FuzzDecode looks for data that makes decoding panic, and for entries that
// Kind and the applier see differently.
func FuzzDecode(f *testing.F) {
	for _, e := range generate(f, 1, 300) {
		f.Add(int32(e.Type), e.Data)
	}
	f.Add(int32(0), bareV2("PUT", "/0/version", "3.5.0", false))
	f.Add(int32(0), wrapped(bareV2("SYNC", "", "", true)))
	f.Fuzz(func(t *testing.T, kind int32, data []byte) {
		e := logOf(t, 1, data)[0]
		e.Type = raftpb.EntryType(kind)
		d := decode(e)
		name, err := Kind(e)
		if name != d.kind {
			t.Errorf("Kind says %s, decoding %s", name, d.kind)
		}
		if err != nil && d.err == nil {
			t.Errorf("Kind says %v, decoding takes it", err)
		}
		if d.err != nil && (d.request != nil || d.change != nil) {
			t.Error("something is left to apply beside the error", d.err)
		}
		if r := d.request; r != nil && r.Header == nil && r.ID == 0 {
			t.Error("a request without a header was taken")
		}
	})
}
