package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Bucket is a sorted set of keys with values, or with buckets inside.
type Bucket struct {
	file   *File
	root   uint64 // the root page, unless
	inline *page  // the bucket's only page lies in its parent's
}

const bucketHeaderSize = 16

// Get returns the value of a key: nil when there is none or it is a bucket, and
// never nil otherwise.
func (b *Bucket) Get(key []byte) ([]byte, error) {
	_, e, err := b.find(key)
	if err != nil || e == nil || e.bucket {
		return nil, err
	}
	return e.value, nil
}

// Bucket opens a bucket inside this one; nil when there is none of that name.
func (b *Bucket) Bucket(name []byte) (*Bucket, error) {
	p, e, err := b.find(name)
	if err != nil || e == nil || !e.bucket {
		return nil, err
	}
	return b.open(p, *e)
}

// open opens the bucket that an element of a page is.
func (b *Bucket) open(p *page, e element) (*Bucket, error) {
	fault := func(err error) (*Bucket, error) {
		return nil, &PageError{p.id, p.offset, fmt.Errorf("bucket %q: %w", e.key, err)}
	}
	if len(e.value) < bucketHeaderSize {
		return fault(fmt.Errorf("its %d bytes are too few", len(e.value)))
	}
	child := &Bucket{file: b.file, root: binary.LittleEndian.Uint64(e.value)}
	if child.root != 0 {
		return child, nil
	}
	inline, err := parsePage(e.value[bucketHeaderSize:])
	if err == nil && !inline.leaf {
		err = errors.New("a branch page inside another page")
	}
	if err != nil {
		return fault(err)
	}
	inline.id, inline.offset = p.id, p.offset
	child.inline = inline
	return child, nil
}

// find returns the element of a key, and its page; nil when there is none.
func (b *Bucket) find(key []byte) (*page, *element, error) {
	c := b.Cursor()
	if err := c.seek(key); err != nil || !c.valid() {
		return nil, nil, err
	}
	p, e := c.at()
	if !bytes.Equal(e.key, key) {
		return nil, nil, nil
	}
	return p, &e, nil
}

// ForEach calls do for every key in order until it returns an error, which it
// then returns. The value of a bucket is nil.
func (b *Bucket) ForEach(do func(key, value []byte) error) error {
	c := b.Cursor()
	for key, value, err := c.First(); key != nil || err != nil; key, value, err = c.Next() {
		if err != nil {
			return err
		}
		if err := do(key, value); err != nil {
			return err
		}
	}
	return nil
}
