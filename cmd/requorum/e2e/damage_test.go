package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
)

// damaged are repositories that a test may spoil, each with two backups of one
// small cluster, the older one first.
type damaged struct {
	u        *user
	cluster  *storetest.Cluster
	identity string // file
	age      []string
}

func startDamaged(t *testing.T) *damaged {
	t.Helper()
	d := &damaged{u: newUser(t), cluster: storetest.Start(t, storetest.Options{Version: "3.7"})}
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	d.identity = d.u.Path("identity.txt")
	require.NoError(t, os.WriteFile(d.identity, []byte(key.String()+"\n"), 0o600))
	d.age = []string{"--recipient", key.Recipient().String()}
	return d
}

// repo makes a repository with two backups.
func (d *damaged) repo(t *testing.T, name string, more ...string) (path string, older, newer *snapshot.Manifest) {
	t.Helper()
	path = d.u.Path(name)
	var two [2]*snapshot.Manifest
	for i := range two {
		_, err := d.cluster.Client(t).Put(t.Context(), "/key", fmt.Sprint(i))
		require.NoError(t, err)
		two[i] = d.u.backup(t, d.cluster.Endpoints(), path, more...)
	}
	return path, two[0], two[1]
}

// copied is a copy of a repository.
func (d *damaged) copied(t *testing.T, repo string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "repo")
	require.NoError(t, os.CopyFS(to, os.DirFS(repo)))
	return to
}

// restore runs a restore to data directories below dir.
func (d *damaged) restore(t *testing.T, repo, dir string, more ...string) ended {
	t.Helper()
	args := append([]string{"restore", "--repo", repo, "--identity", d.identity,
		"--initial-cluster", "m1=http://127.0.0.1:2380", "--data-dir", dataDirs(dir)}, more...)
	return run(t, args...)
}

// expectFound wants damage to be found: exit code 3, nothing built, the older
// good backup named (where there is one).
func (d *damaged) expectFound(t *testing.T, repo, what, older string, more ...string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "new")
	e := d.restore(t, repo, dir, more...)
	if e.Code != exitDamaged {
		t.Errorf("%s: exit code %d, want %d: %s", what, e.Code, exitDamaged, e)
	}
	if left := tree(t, dir); len(left) != 0 {
		t.Errorf("%s: left %v", what, left)
	}
	if older != "" && !strings.Contains(e.Stderr, older) {
		t.Errorf("%s: the next older backup %s is not named: %s", what, older, e)
	}
}

// expectGood wants the repository to be as good as new: a test that damaged it
// has to put it right.
func (d *damaged) expectGood(t *testing.T, repo string) {
	t.Helper()
	if e := d.restore(t, repo, filepath.Join(t.TempDir(), "new")); e.Code != exitOK {
		t.Fatalf("undamaged, and it does not restore: %s", e)
	}
}

// TestFlippedBit is point 5 of what the main job must show: one bit of a stored
// object is flipped, at every byte in a soak, and else at all places that have a form
// (headers, footers, the seek table) and a sample of the others; with -short at a sample
// of both: sinks/codec flips each byte.
func TestFlippedBit(t *testing.T) {
	t.Parallel()
	d := startDamaged(t)
	for _, form := range []struct {
		name string
		more []string
	}{{"plain", nil}, {"encrypted", d.age}} {
		t.Run(form.name, func(t *testing.T) {
			repo, older, newer := d.repo(t, form.name, form.more...)
			data, err := os.ReadFile(filepath.Join(repo, newer.Object.Name))
			require.NoError(t, err)
			places := flips(len(data))
			t.Logf("%d places in %d bytes", len(places), len(data))
			var group errgroup.Group
			group.SetLimit(4)
			for some := range slices.Chunk(places, (len(places)+3)/4) {
				copied := d.copied(t, repo)
				object := filepath.Join(copied, newer.Object.Name)
				require.NoError(t, os.Chmod(object, 0o600))
				group.Go(func() error {
					for i, at := range some {
						bit := byte(1) << rand.IntN(8)
						if err := flip(object, int64(at), bit); err != nil {
							return err
						}
						name := "" // looking for the older one reads it whole
						if i%16 == 0 {
							name = older.ID
						}
						d.expectFound(t, copied, fmt.Sprintf("byte %d of %d, bit %08b", at, len(data), bit), name, newer.ID)
						if err := flip(object, int64(at), bit); err != nil {
							return err
						}
						if t.Failed() {
							return nil
						}
					}
					d.expectGood(t, copied)
					return nil
				})
			}
			require.NoError(t, group.Wait())
		})
	}
}

// flips are the places to flip a bit at.
func flips(size int) []int {
	var places []int
	if storetest.Soak() {
		for i := range size {
			places = append(places, i)
		}
		return places
	}
	const ends = 40 // bytes at either end: frame header, age header, seek table and its footer
	every := storetest.Amount(2, 1, 0)
	for i := rand.IntN(every); i < ends; i += every {
		places = append(places, i, size-1-i)
	}
	for range storetest.Amount(20, 140, 0) {
		places = append(places, ends+rand.IntN(size-2*ends))
	}
	return places
}

func flip(path string, at int64, bit byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= bit
	_, err = f.WriteAt(b, at)
	return err
}

// TestDamagedRepository is the rest of point 5: objects that are cut short,
// gone, or of another backup, and manifests that somebody edited or exchanged.
func TestDamagedRepository(t *testing.T) {
	t.Parallel()
	d := startDamaged(t)
	manifest := func(repo string, m *snapshot.Manifest) string {
		return filepath.Join(repo, m.Timeline.String(), "full", m.ID, "manifest.json")
	}
	object := func(repo string, m *snapshot.Manifest) string { return filepath.Join(repo, m.Object.Name) }
	for _, form := range []struct {
		name string
		more []string
	}{{"plain", nil}, {"encrypted", d.age}} {
		pristine, older, newer := d.repo(t, form.name, form.more...)
		d.expectGood(t, pristine)
		for name, spoil := range map[string]func(t *testing.T, repo string, older, newer *snapshot.Manifest){
			"object empty": func(t *testing.T, repo string, _, newer *snapshot.Manifest) {
				rewrite(t, object(repo, newer), func([]byte) []byte { return nil })
			},
			"object cut in the middle": func(t *testing.T, repo string, _, newer *snapshot.Manifest) {
				rewrite(t, object(repo, newer), func(b []byte) []byte { return b[:len(b)/2] })
			},
			"object without its last byte": func(t *testing.T, repo string, _, newer *snapshot.Manifest) {
				rewrite(t, object(repo, newer), func(b []byte) []byte { return b[:len(b)-1] })
			},
			"object with a byte more": func(t *testing.T, repo string, _, newer *snapshot.Manifest) {
				rewrite(t, object(repo, newer), func(b []byte) []byte { return append(b, 0) })
			},
			"object gone": func(t *testing.T, repo string, _, newer *snapshot.Manifest) {
				remove(t, object(repo, newer))
			},
			"objects exchanged": func(t *testing.T, repo string, older, newer *snapshot.Manifest) {
				exchange(t, object(repo, older), object(repo, newer))
			},
			"object of the older backup": func(t *testing.T, repo string, older, newer *snapshot.Manifest) {
				copyOver(t, object(repo, older), object(repo, newer))
			},
			"manifest with another revision": func(t *testing.T, repo string, _, newer *snapshot.Manifest) {
				edit(t, manifest(repo, newer), `"revision": `, `"revision": 1`)
			},
			"manifest with another hash": func(t *testing.T, repo string, older, newer *snapshot.Manifest) {
				edit(t, manifest(repo, newer), newer.Object.StoredSHA256, older.Object.StoredSHA256)
			},
			"manifest cut": func(t *testing.T, repo string, _, newer *snapshot.Manifest) {
				rewrite(t, manifest(repo, newer), func(b []byte) []byte { return b[:len(b)/2] })
			},
			"manifest empty": func(t *testing.T, repo string, _, newer *snapshot.Manifest) {
				rewrite(t, manifest(repo, newer), func([]byte) []byte { return nil })
			},
			"manifests exchanged": func(t *testing.T, repo string, older, newer *snapshot.Manifest) {
				exchange(t, manifest(repo, older), manifest(repo, newer))
			},
			"manifest of the older backup": func(t *testing.T, repo string, older, newer *snapshot.Manifest) {
				copyOver(t, manifest(repo, older), manifest(repo, newer))
			},
		} {
			t.Run(form.name+" "+name, func(t *testing.T) {
				repo := d.copied(t, pristine)
				// A restore notes its timeline in the repository; that is not under test.
				spoil(t, repo, older, newer)
				good := older.ID
				if strings.Contains(name, "exchanged") {
					good = "" // both are damaged
				}
				// By default the newest state is meant: that it is damaged must not make
				// an older one pass for it.
				d.expectFound(t, repo, name, good)
				d.expectFound(t, repo, name, good, newer.ID)
				if strings.HasPrefix(name, "manifest") {
					if e := d.u.Run(t, "list", "--repo", repo); e.Code != exitDamaged || !strings.Contains(e.Stdout, "UNUSABLE: "+repository.ManifestName(newer.Timeline, newer.ID)) {
						t.Errorf("not listed as damaged: %s", e)
					}
					if e := d.u.Run(t, "show", newer.ID, "--repo", repo); e.Code != exitDamaged {
						t.Errorf("shown: %s", e)
					}
				}
				if good == "" {
					return
				}
				// What was named can be restored.
				if e := d.restore(t, repo, filepath.Join(t.TempDir(), "older"), older.ID); e.Code != exitOK {
					t.Errorf("the older backup: %s", e)
				}
			})
		}
	}
	// Without its descriptor nobody knows where a timeline came from; that must
	// not hide the backups in it.
	for name, spoil := range map[string]func(path string){
		"descriptor gone":   func(path string) { remove(t, path) },
		"descriptor edited": func(path string) { rewrite(t, path, func(b []byte) []byte { return b[:len(b)/2] }) },
	} {
		t.Run(name, func(t *testing.T) {
			repo, _, newer := d.repo(t, name)
			spoil(filepath.Join(repo, "timelines", newer.Timeline.String()+".json"))
			if e := d.u.Run(t, "list", "--repo", repo); e.Code != exitDamaged || !strings.Contains(e.Stdout, newer.ID) {
				t.Errorf("not listed with exit code %d: %s", exitDamaged, e)
			}
			d.expectGood(t, repo)
		})
	}
	t.Run("marker gone", func(t *testing.T) {
		repo, _, _ := d.repo(t, "marker gone")
		remove(t, filepath.Join(repo, "requorum.json"))
		if e := d.u.Run(t, "list", "--repo", repo); e.Code == exitOK {
			t.Errorf("exit code %d: %s", e.Code, e)
		}
	})
}

// TestReadBackFindsDamage: what a repository gives back is compared before the
// manifest is written: a backup that the store spoilt never comes to be.
func TestReadBackFindsDamage(t *testing.T) {
	t.Parallel()
	c := startPlain(t, "3.7", 1, 100, 64<<10)
	server := sinktest.StartVersityGW(t, sinktest.VersityGWOptions{Buckets: []sinktest.S3Bucket{{Name: "backups"}}})
	u := newUser(t, "AWS_ACCESS_KEY_ID="+server.AccessKey, "AWS_SECRET_ACCESS_KEY="+server.SecretKey)
	for name, at := range map[string]int64{"first byte": 0, "later": 4000} {
		t.Run(name, func(t *testing.T) {
			proxy := sinktest.NewFaultProxy(t, server.Endpoint, sinktest.ProxyFault{
				Name: "a flipped bit", Match: sinktest.IsGet("snapshot.zst"), Times: -1, Do: sinktest.FlipResponse(at)})
			prefix := strings.ReplaceAll(name, " ", "-")
			e := u.Run(t, append(backupArgs(c.Endpoints(), server.URLThrough(proxy.Endpoint, "backups", prefix)), "--read-back", "--retry-for", "2s")...)
			proxy.AllFired(t)
			if e.Code != exitDamaged {
				t.Errorf("exit code %d, want %d: %s", e.Code, exitDamaged, e)
			}
			if r := u.list(t, server.URL("backups", prefix)); len(r.Backups)+len(r.Incomplete) != 0 {
				t.Errorf("left: %+v", r)
			}
			// With the store mended, the next one needs no cleaning.
			u.backup(t, c.Endpoints(), server.URL("backups", prefix), "--read-back")
		})
	}
}

func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.WriteFile(path, change(data), 0o600))
}

// edit replaces a text in a document that stays a document.
func edit(t *testing.T, path, old, new string) {
	t.Helper()
	rewrite(t, path, func(b []byte) []byte {
		changed := strings.Replace(string(b), old, new, 1)
		if changed == string(b) || !json.Valid([]byte(changed)) {
			t.Fatalf("%s: %q cannot be made %q", path, old, new)
		}
		return []byte(changed)
	})
}

func remove(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Remove(path))
}

func exchange(t *testing.T, a, b string) {
	t.Helper()
	for _, step := range [][2]string{{a, a + ".tmp"}, {b, a}, {a + ".tmp", b}} {
		require.NoError(t, os.Rename(step[0], step[1]))
	}
}

func copyOver(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	rewrite(t, to, func([]byte) []byte { return data })
}
