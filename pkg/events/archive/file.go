package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/pkg/events"
)

// File is a record in a file. It is safe for concurrent use.
type File struct {
	name    string
	from    io.ReaderAt
	close   func() error
	about   About
	streams map[string]*stream
	unpack  *zstd.Decoder
	cache   cache
	done    chan struct{}
	once    sync.Once
}

// stream is one of a file's.
type stream struct {
	streamIndex
	// subjects are read when they are asked for.
	once     sync.Once
	subjects map[string]posting
	err      error
}

// ErrNoRecord: the file is none that [Export] wrote.
var ErrNoRecord = errors.New("no exported record")

// Open opens a file.
//
// Errors: it is not there; [ErrNoRecord]; *[Cut], when its end is missing or
// damaged.
func Open(name string) (*File, error) {
	from, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the record: %w", err)
	}
	info, err := from.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the record: %w", err), from.Close())
	}
	f, err := New(name, from, info.Size())
	if err != nil {
		return nil, errors.Join(err, from.Close())
	}
	f.close = from.Close
	return f, nil
}

// New opens what can be read as a file. The name is for messages.
//
// Errors: those of [Open].
func New(name string, from io.ReaderAt, size int64) (*File, error) {
	unpack, err := zstd.NewReader(nil)
	if err != nil {
		return nil, fmt.Errorf("set up zstd: %w", err)
	}
	f := &File{name: name, from: from, unpack: unpack, close: func() error { return nil }, done: make(chan struct{})}
	if err := f.readIndex(size); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) readIndex(size int64) error {
	tail := make([]byte, trailerSize)
	if size < int64(trailerSize) {
		return f.cut(size)
	}
	if _, err := f.from.ReadAt(tail, size-int64(trailerSize)); err != nil {
		return fmt.Errorf("read %s: %w", f.name, err)
	}
	at, ok := decodeTrailer(tail, size)
	if !ok {
		return f.cut(size)
	}
	text, err := f.frame(at)
	var found index
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	switch {
	case err != nil:
		return f.cut(size)
	case found.About.Version > formatVersion:
		return fmt.Errorf("%s is of version %d of the format, and this program reads up to %d: use a newer one", f.name, found.About.Version, formatVersion)
	}
	f.about, f.streams = found.About, make(map[string]*stream, len(found.Streams))
	for _, s := range found.Streams {
		f.streams[s.Name] = &stream{streamIndex: s}
	}
	return nil
}

// About is what the file says of itself.
func (f *File) About() About { return f.about }

// Streams are what is in it, in the order of the file.
func (f *File) Streams() []Stream {
	var out []Stream
	for _, name := range f.about.Streams {
		if s := f.streams[name]; s != nil {
			out = append(out, s.Stream)
		}
	}
	return out
}

// Close closes the file, and ends those who follow it.
func (f *File) Close() (err error) {
	f.once.Do(func() {
		close(f.done)
		err = f.close()
	})
	return err
}

var errSum = errors.New("its sum is not what it was")

// frame reads and unpacks a frame.
func (f *File) frame(e extent) ([]byte, error) {
	packed := make([]byte, e.Length)
	if _, err := f.from.ReadAt(packed, e.Offset); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.name, err)
	}
	if sumOf(packed) != e.Sum {
		return nil, errSum
	}
	text, err := f.unpack.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return text, nil
}

// damaged says what of a stream cannot be read.
func (f *File) damaged(s *stream, what string, err error) error {
	return fmt.Errorf("%s of %s in %s: %w: %w", what, s.Name, f.name, events.ErrDamaged, err)
}

// postings are where each subject of a stream is.
func (f *File) postings(s *stream) (map[string]posting, error) {
	s.once.Do(func() {
		text, err := f.frame(s.Subjects)
		if err == nil {
			s.subjects, err = decodeSubjects(text, len(s.Blocks))
		}
		if err != nil {
			s.err = f.damaged(s, "the list of the subjects", err)
		}
	})
	return s.subjects, s.err
}

func decodeSubjects(text []byte, blocks int) (map[string]posting, error) {
	_, rest, _ := bytes.Cut(text, []byte{'\n'})
	found := make(map[string]posting, bytes.Count(rest, []byte{'\n'}))
	for line := range bytes.Lines(rest) {
		words := strings.Fields(string(line))
		if len(words) < 3 {
			return nil, errText
		}
		last, err := strconv.ParseUint(words[0], 10, 64)
		if err != nil {
			return nil, errText
		}
		p, at := posting{last: last, blocks: make([]int, len(words)-2)}, 0
		for i, word := range words[1 : len(words)-1] {
			step, err := strconv.Atoi(word)
			if at += step; err != nil || step < 0 || at >= blocks {
				return nil, errText
			}
			p.blocks[i] = at
		}
		found[words[len(words)-1]] = p
	}
	return found, nil
}

// unpacked is a block that has been read.
type unpacked struct {
	text   []byte
	places []place
}

// find is the first message of the block at a sequence or behind it.
func (u *unpacked) find(sequence uint64) int {
	at, _ := slices.BinarySearchFunc(u.places, sequence, func(p place, n uint64) int {
		switch {
		case p.sequence < n:
			return -1
		case p.sequence > n:
			return 1
		}
		return 0
	})
	return at
}

// load reads a block, or takes it from those that were read lately.
func (f *File) load(s *stream, n int) (*unpacked, error) {
	key := cacheKey{s.Name, n}
	if u := f.cache.get(key); u != nil {
		return u, nil
	}
	u, err := f.read(s, n)
	if err == nil {
		f.cache.put(key, u)
	}
	return u, err
}

// read reads a block.
func (f *File) read(s *stream, n int) (*unpacked, error) {
	b := s.Blocks[n]
	what := fmt.Sprintf("the block with the messages %d to %d", b.First, b.Last)
	text, err := f.frame(b.extent)
	if err != nil {
		return nil, f.damaged(s, what, err)
	}
	name, found, err := places(text, b)
	if err != nil {
		return nil, f.damaged(s, what, err)
	}
	if name != s.Name {
		return nil, f.damaged(s, what, fmt.Errorf("it says that it is of %s", name))
	}
	return &unpacked{text, found}, nil
}

// cached is how many blocks are kept unpacked: some 32 MB.
const cached = 128

// cache keeps the blocks that were read last. The zero value is ready.
type cache struct {
	mu     sync.Mutex
	blocks map[cacheKey]*unpacked
	order  []cacheKey
}

type cacheKey struct {
	stream string
	block  int
}

func (c *cache) get(key cacheKey) *unpacked {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocks[key]
}

func (c *cache) put(key cacheKey, u *unpacked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks == nil {
		c.blocks = map[cacheKey]*unpacked{}
	}
	if _, there := c.blocks[key]; there {
		return
	}
	if len(c.order) >= cached {
		delete(c.blocks, c.order[0])
		c.order = c.order[1:]
	}
	c.blocks[key] = u
	c.order = append(c.order, key)
}
