package structure

import (
	"fmt"

	"github.com/requorum/requorum/snapshot/pages"
	"github.com/requorum/requorum/verify/report"
)

// checkFreelist holds the pages that no bucket has against the freelist. etcd
// has bbolt store none.
func (c *check) checkFreelist() error {
	id := c.meta.Freelist
	if id == pages.NoFreelist {
		return nil
	}
	fault := func(format string, args ...any) {
		c.found.add(report.KindPage, pageAt(id), "freelist: "+format, args...)
	}
	if id < 2 || id >= c.meta.Pages {
		fault("the pages that can hold it are 2 to %d", c.meta.Pages-1)
		return nil
	}
	load := loader{src: c.src, meta: c.meta}
	all, err := load.load([]uint64{id})
	if err != nil {
		return err
	}
	list, damage := parseFreelist(all[0])
	if damage != nil {
		fault("%v", damage)
		return nil
	}
	if !c.used.set(id) {
		fault("a bucket uses this page as well")
	}
	c.claimMore(&c.found, all[0])
	free := newPageMap(c.meta.Pages)
	for _, p := range list {
		switch {
		case p < 2 || p >= c.meta.Pages:
			fault("it names page %d, and the pages that can be free are 2 to %d", p, c.meta.Pages-1)
		case !free.set(p):
			fault("it names page %d twice", p)
		case c.used.has(p):
			c.found.add(report.KindPage, pageAt(p), "it is in use, and the freelist has it as free")
		}
	}
	if !c.incomplete.Load() {
		c.findLost(free)
	}
	return nil
}

func parseFreelist(l loaded) ([]uint64, error) {
	if l.err != nil {
		return nil, l.err
	}
	return pages.ParseFreelist(l.bytes)
}

// findLost finds pages that are neither used nor free, a row of them at a time.
func (c *check) findLost(free *pageMap) {
	lost := func(id uint64) bool { return id < c.meta.Pages && !c.used.has(id) && !free.has(id) }
	for id := uint64(2); id < c.meta.Pages; id++ {
		if !lost(id) {
			continue
		}
		first := id
		for lost(id + 1) {
			id++
		}
		where := pageAt(first)
		if id > first {
			where = fmt.Sprintf("pages %d to %d", first, id)
		}
		c.found.add(report.KindPage, where, "in no bucket, and not on the freelist: lost")
	}
}

func (c *check) comparePages() {
	if c.meta.Freelist == pages.NoFreelist {
		c.compared("page graph: every page that is reached from the root against every other one; the database stores no freelist, as etcd has it, so pages that are not reached are free")
		return
	}
	c.compared("page graph: every page is reached once or is on the freelist")
}
