package structure

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/requorum/requorum/snapshot/pages"
	"github.com/requorum/requorum/snapshot/rowkey"
	"github.com/requorum/requorum/verify/report"
)

// bucketRoot is where a bucket's rows are: below a page, or in a page that lies
// inside of another one.
type bucketRoot struct {
	page   uint64
	inline pages.Page
	broken bool
}

// bucketNames are etcd's buckets, in the order in which they are looked at: what
// others refer to comes first. Each is made when etcd starts, but for cluster:
// etcdutl removes it when it restores.
var bucketNames = []string{"meta", "cluster", "members", "members_removed", "lease", "alarm", "auth", "authRoles", "authUsers", "key"}

// readRoot finds the buckets.
func (c *check) readRoot() error {
	c.buckets = map[string]bucketRoot{}
	return c.eachRow("root bucket", bucketRoot{page: c.meta.Root}, func(page uint64, e pages.Element) error {
		if !e.Bucket {
			c.found.add(report.KindBucket, pageAt(page), "%s stands among the buckets, and is none", shown(e.Key))
			return nil
		}
		root, inline, err := pages.ParseBucket(e.Value)
		if err != nil {
			c.found.add(report.KindBucket, fmt.Sprintf("%s, bucket %s", pageAt(page), shown(e.Key)), "%v", err)
			c.incomplete.Store(true)
		}
		c.buckets[string(e.Key)] = bucketRoot{root, inline, err != nil}
		return nil
	})
}

// eachRow calls do for each row of a bucket whose page can be read, in order.
// Buckets inside of it are no rows: etcd makes none; root bucket alone has them.
func (c *check) eachRow(name string, root bucketRoot, do func(page uint64, e pages.Element) error) error {
	if root.broken {
		return nil
	}
	isRoot := name == "root bucket"
	rows := func(id uint64, p pages.Page, l leaf) error {
		inPlace(&c.found, name, id, p, l)
		for i := range p.Len() {
			e := p.Element(i)
			if e.Bucket && !isRoot {
				c.found.add(report.KindBucket, pageAt(id), "bucket %s has a bucket %s inside", name, shown(e.Key))
				c.incomplete.Store(true)
				continue
			}
			if err := do(id, e); err != nil {
				return err
			}
		}
		return nil
	}
	if root.page == 0 {
		return rows(c.meta.Root, root.inline, leaf{root: true})
	}
	load := loader{src: c.src, meta: c.meta, reuse: true}
	return c.walk(name, root.page, func(s *stretch) error {
		c.found.join(&s.faults)
		return c.eachLeaf(&load, &c.found, name, s, func(l leaf, b loaded, p pages.Page) error { return rows(b.id, p, l) })
	})
}

// eachLeaf loads the leaves of a stretch, and calls do for those that can be
// read. The others are faults.
// torn is set in a leaf that comes behind such a one.
func (c *check) eachLeaf(load *loader, f *findings, name string, s *stretch, do func(leaf, loaded, pages.Page) error) error {
	torn := false
	ids := make([]uint64, len(s.leaves))
	for i, l := range s.leaves {
		ids[i] = l.id
	}
	for done := 0; done < len(ids); {
		all, err := load.load(ids[done:])
		if err != nil {
			return err
		}
		for i, b := range all {
			l := s.leaves[done+i]
			l.torn, torn = l.torn || torn, false
			p, err := parseLeaf(b)
			if err != nil {
				f.add(report.KindPage, pageAt(b.id), "bucket %s: %v", name, err)
				c.incomplete.Store(true)
				torn = true
				continue
			}
			c.claimMore(f, b)
			if err := do(l, b, p); err != nil {
				return err
			}
		}
		done += len(all)
	}
	if torn {
		s.tornAtEnd = true
	}
	return nil
}

func parseLeaf(b loaded) (pages.Page, error) {
	if b.err != nil {
		return pages.Page{}, b.err
	}
	p, err := pages.ParsePage(b.bytes)
	if err == nil && !p.Leaf() {
		err = fmt.Errorf("it is a branch where a leaf must be")
	}
	return p, err
}

// inPlace checks that the keys of a leaf are in order and where they belong.
func inPlace(f *findings, name string, id uint64, p pages.Page, l leaf) bool {
	if p.Len() == 0 && !l.root {
		f.add(report.KindPage, pageAt(id), "bucket %s: a leaf without rows below a branch", name)
		return false
	}
	var before []byte
	for i := range p.Len() {
		key := p.Element(i).Key
		switch {
		case i > 0 && bytes.Compare(before, key) >= 0:
			f.add(report.KindPage, pageAt(id), "bucket %s: key %s follows %s, which is out of order", name, shown(key), shown(before))
			return false
		case i == 0 && l.low != nil && bytes.Compare(key, l.low) < 0:
			f.add(report.KindPage, pageAt(id), "bucket %s: key %s is below %s, with which the page has to begin", name, shown(key), shown(l.low))
			return false
		case i == p.Len()-1 && l.high != nil && bytes.Compare(key, l.high) >= 0:
			f.add(report.KindPage, pageAt(id), "bucket %s: key %s belongs into a later page, that begins with %s", name, shown(key), shown(l.high))
			return false
		}
		before = key
	}
	return true
}

// readSmallBuckets decodes all buckets but key.
func (c *check) readSmallBuckets() error {
	handlers := map[string]func(where string, key, value []byte){
		"meta": c.metaRow, "cluster": c.clusterRow, "members": c.memberRow, "members_removed": c.removedRow, "lease": c.leaseRow,
		"alarm": c.alarmRow, "auth": c.authRow, "authRoles": c.roleRow, "authUsers": c.userRow,
	}
	var rows int64
	for _, name := range bucketNames {
		handle := handlers[name]
		root, exists := c.buckets[name]
		if handle == nil || !exists {
			continue
		}
		err := c.eachRow(name, root, func(page uint64, e pages.Element) error {
			rows++
			handle(fmt.Sprintf("%s, bucket %s", pageAt(page), name), e.Key, e.Value)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := c.readUnknownBuckets(); err != nil {
		return err
	}
	c.checkMissingBuckets()
	c.checkCompactions()
	c.checkMembers()
	c.checkAuth()
	c.compared("%d rows of the buckets beside key, each decoded: members with the raft configuration, users with roles", rows)
	return nil
}

// readUnknownBuckets goes through the pages of buckets that a later etcd may
// have made.
func (c *check) readUnknownBuckets() error {
	known := map[string]bool{}
	for _, name := range bucketNames {
		known[name] = true
	}
	for _, name := range sortedKeys(c.buckets) {
		if known[name] {
			continue
		}
		quoted := shown([]byte(name)) // as findings call it: anything can be in a name
		c.note("bucket %s is not one of etcd 3.4 to 3.7; etcd does not read it", quoted)
		if err := c.eachRow(quoted, c.buckets[name], func(uint64, pages.Element) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// checkMissingBuckets: etcd makes all of its buckets before it applies the first
// entry. A database from before that may have none.
func (c *check) checkMissingBuckets() {
	if c.incomplete.Load() {
		return
	}
	for _, name := range bucketNames {
		_, exists := c.buckets[name]
		if exists || name == "cluster" || name != "key" && name != "meta" && c.db.meta.index == 0 {
			continue
		}
		c.found.add(report.KindBucket, "", "bucket %s is missing: etcd makes it when it starts", name)
	}
}

// shown is a key for people: the revisions of rows as numbers, all else quoted,
// and cut where it is long.
func shown(key []byte) string {
	const most = 64
	if r, err := rowkey.Parse(key); err == nil {
		return "revision " + r.String()
	}
	if len(key) > most {
		return strconv.Quote(string(key[:most])) + "…"
	}
	return strconv.Quote(string(key))
}
