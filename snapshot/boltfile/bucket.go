package boltfile

import (
	"bytes"
	"errors"
	"fmt"
)

// Bucket is a sorted set of keys with values, or with buckets inside.
type Bucket struct {
	file   *File
	root   uint64 // the root page, unless
	inline *Page  // the bucket's only page lies in its parent's
}

const bucketHeaderSize = 16

// Get returns the value of a key: nil when there is none or it is a bucket, and
// never nil otherwise.
func (b *Bucket) Get(key []byte) ([]byte, error) {
	_, e, err := b.find(key)
	if err != nil || e == nil || e.Bucket {
		return nil, err
	}
	return e.Value, nil
}

// Bucket opens a bucket inside this one; nil when there is none of that name.
func (b *Bucket) Bucket(name []byte) (*Bucket, error) {
	at, e, err := b.find(name)
	if err != nil || e == nil || !e.Bucket {
		return nil, err
	}
	p := at.page
	root, inline, err := parseBucket(e.Value)
	if err != nil {
		return nil, &PageError{p.id, p.offset, fmt.Errorf("bucket %q: %w", e.Key, err)}
	}
	if inline != nil {
		inline.id, inline.offset = p.id, p.offset
		inline.start = p.keyAt(at.index) + int64(len(e.Key)) + bucketHeaderSize
	}
	return &Bucket{file: b.file, root: root, inline: inline}, nil
}

// find returns the element of a key, and where it is; nil when there is none.
func (b *Bucket) find(key []byte) (position, *Element, error) {
	c := b.Cursor()
	if err := c.seek(key); err != nil || !c.valid() {
		return position{}, nil, err
	}
	_, e := c.at()
	if !bytes.Equal(e.Key, key) {
		return position{}, nil, nil
	}
	return c.stack[len(c.stack)-1], &e, nil
}

// ForEach calls do for every key in order until it returns an error, which it
// then returns. The value of a bucket is nil.
func (b *Bucket) ForEach(do func(key, value []byte) error) error {
	return b.EachElement(func(e Element, _ int64) error {
		if e.Bucket {
			return do(e.Key, nil)
		}
		return do(e.Key, e.Value)
	})
}

// EachElement is ForEach with the elements themselves, and the offset of each one's key in
// the file; its value is behind that.
func (b *Bucket) EachElement(do func(e Element, at int64) error) error {
	c := b.Cursor()
	err := c.reset()
	if err == nil {
		err = c.descendFirst()
	}
	var before []byte
	for err == nil && len(c.stack) > 0 {
		p := c.stack[len(c.stack)-1].page
		for i := range p.count {
			e := p.Element(i)
			switch {
			case len(e.Key) == 0:
				return c.fault(p, errEmptyKey)
			case bytes.Compare(before, e.Key) >= 0:
				return c.fault(p, outOfOrder(before, e.Key))
			}
			before = e.Key
			if err := do(e, p.keyAt(i)); err != nil {
				return err
			}
		}
		err = c.up()
	}
	return err
}

var errEmptyKey = errors.New("an empty key")

func outOfOrder(before, key []byte) error {
	return fmt.Errorf("key %x follows %x, which is out of order", key, before)
}

// maxDepth is above any tree's: a page has two children at least, and a
// database of 2^40 pages is beyond what bbolt can map.
const maxDepth = 40

// Cursor walks through a bucket in the order of its keys. Its methods return a
// nil key at the end; the value of a bucket is nil, any other one is not.
// After an error only First, Last and Seek go on.
type Cursor struct {
	bucket *Bucket
	stack  []position // from the root to a leaf
	// visited counts the pages since the last First, Last or Seek. A tree that
	// reaches a page over two ways has more of them than the file.
	visited uint64
}

// position is an element of a page.
type position struct {
	page  *Page
	index int
}

// Cursor returns a new cursor, which points nowhere yet.
func (b *Bucket) Cursor() *Cursor { return &Cursor{bucket: b} }

// First goes to the smallest key.
func (c *Cursor) First() (key, value []byte, err error) { return c.Seek(nil) }

// Seek goes to the smallest key that is not below key.
func (c *Cursor) Seek(key []byte) ([]byte, []byte, error) {
	if err := c.seek(key); err != nil {
		return nil, nil, err
	}
	return c.current()
}

// Last goes to the largest key.
func (c *Cursor) Last() (key, value []byte, err error) {
	if err := c.reset(); err != nil {
		return nil, nil, err
	}
	if err := c.descend(func(p *Page) int { return p.count - 1 }); err != nil {
		return nil, nil, err
	}
	if !c.valid() {
		if p := c.stack[len(c.stack)-1].page; len(c.stack) > 1 {
			// Only a bucket without keys has an empty leaf, and that is its root.
			return nil, nil, c.fault(p, errors.New("an empty leaf page below a branch"))
		}
	}
	return c.current()
}

// Next goes to the key after the current one.
func (c *Cursor) Next() (key, value []byte, err error) {
	if !c.valid() {
		return nil, nil, nil
	}
	_, before := c.at()
	if err := c.advance(); err != nil {
		return nil, nil, err
	}
	if c.valid() {
		if p, e := c.at(); bytes.Compare(before.Key, e.Key) >= 0 {
			return nil, nil, c.fault(p, outOfOrder(before.Key, e.Key))
		}
	}
	return c.current()
}

// Last returns the largest key and its value, a nil key when the bucket is
// empty.
func (b *Bucket) Last() (key, value []byte, err error) { return b.Cursor().Last() }

// seek goes to the smallest key that is not below key.
func (c *Cursor) seek(key []byte) error {
	if err := c.reset(); err != nil {
		return err
	}
	err := c.descend(func(p *Page) int {
		i := p.search(key)
		if !p.leaf && i > 0 && (i == p.count || !bytes.Equal(p.Element(i).Key, key)) {
			i-- // the child that begins below key
		}
		return i
	})
	if err != nil {
		return err
	}
	if top := c.stack[len(c.stack)-1]; top.index >= top.page.count {
		return c.up()
	}
	return nil
}

// reset goes to the root page.
func (c *Cursor) reset() error {
	c.stack, c.visited = c.stack[:0], 0
	root := c.bucket.inline
	if root == nil {
		var err error
		if root, err = c.load(c.bucket.root); err != nil {
			return err
		}
	}
	c.stack = append(c.stack, position{page: root})
	return nil
}

// descend goes down to a leaf, and chooses the way in every page.
func (c *Cursor) descend(choose func(*Page) int) error {
	for {
		top := &c.stack[len(c.stack)-1]
		top.index = choose(top.page)
		if top.page.leaf {
			return nil
		}
		if len(c.stack) == maxDepth {
			return c.fault(top.page, fmt.Errorf("it is the %dth branch page on one way: they go round in a circle", maxDepth))
		}
		child, err := c.load(top.page.Element(top.index).Child)
		if err != nil {
			return c.broken(err)
		}
		c.stack = append(c.stack, position{page: child})
	}
}

// advance goes to the next element, of the next leaf where there is one.
func (c *Cursor) advance() error {
	c.stack[len(c.stack)-1].index++
	if top := c.stack[len(c.stack)-1]; top.index < top.page.count {
		return nil
	}
	return c.up()
}

// up leaves a leaf that is used up for the next one that has keys.
func (c *Cursor) up() error {
	for {
		c.stack = c.stack[:len(c.stack)-1]
		if len(c.stack) == 0 {
			return nil
		}
		top := &c.stack[len(c.stack)-1]
		if top.index++; top.index >= top.page.count {
			continue
		}
		child, err := c.load(top.page.Element(top.index).Child)
		if err != nil {
			return c.broken(err)
		}
		c.stack = append(c.stack, position{page: child})
		if err := c.descendFirst(); err != nil {
			return err
		}
		if c.valid() {
			return nil
		}
	}
}

// descendFirst goes down on the first way, from where the cursor is.
func (c *Cursor) descendFirst() error { return c.descend(func(*Page) int { return 0 }) }

// load reads a page and counts it.
func (c *Cursor) load(id uint64) (*Page, error) {
	p, err := c.bucket.file.page(id)
	if err != nil {
		return nil, err
	}
	if c.visited++; c.visited > c.bucket.file.meta.Pages {
		return nil, c.fault(p, errors.New("pages are reached more than once"))
	}
	return p, nil
}

// valid reports whether the cursor is at an element.
func (c *Cursor) valid() bool {
	if len(c.stack) == 0 {
		return false
	}
	top := c.stack[len(c.stack)-1]
	return top.page.leaf && 0 <= top.index && top.index < top.page.count
}

// at returns the element that the cursor is at.
func (c *Cursor) at() (*Page, Element) {
	top := c.stack[len(c.stack)-1]
	return top.page, top.page.Element(top.index)
}

func (c *Cursor) current() (key, value []byte, err error) {
	if !c.valid() {
		return nil, nil, nil
	}
	p, e := c.at()
	switch {
	case len(e.Key) == 0:
		return nil, nil, c.fault(p, errEmptyKey)
	case e.Bucket:
		return e.Key, nil, nil
	}
	return e.Key, e.Value, nil
}

// fault is damage in a page. The cursor points nowhere afterwards.
func (c *Cursor) fault(p *Page, err error) error {
	return c.broken(&PageError{p.id, p.offset, err})
}

func (c *Cursor) broken(err error) error {
	c.stack = c.stack[:0]
	return err
}
