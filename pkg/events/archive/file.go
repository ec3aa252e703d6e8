package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/pkg/events"
)

// File is an exported record. It is safe for concurrent use.
type File struct {
	name    string
	from    io.ReaderAt
	close   func() error
	about   About
	streams map[string]*stream
	cache   cache
	// unpacking guards the only decoder, whose memory is bounded.
	unpacking sync.Mutex
	unpacker  *zstd.Decoder
	done      chan struct{}
	once      sync.Once
}

// stream is a stream of a file.
type stream struct {
	streamIndex
	// subjects is read on first use.
	once     sync.Once
	subjects subjectList
	err      error
}

// ErrNoRecord: [Export] did not write the file.
var ErrNoRecord = errors.New("no exported record")

// Open opens a file.
//
// Errors: the file does not exist; [ErrNoRecord]; *[Cut], when its end is missing or damaged.
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

// New opens a record from any reader. The name is for error messages.
//
// Errors: those of [Open].
func New(name string, from io.ReaderAt, size int64) (*File, error) {
	unpacker, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("set up zstd: %w", err)
	}
	f := &File{name: name, from: from, unpacker: unpacker, close: func() error { return nil }, done: make(chan struct{})}
	if err := f.readIndex(size); err != nil {
		return nil, err
	}
	return f, nil
}

// About is the file's description of itself.
func (f *File) About() About { return f.about }

// Streams are the streams in the file, in its order.
func (f *File) Streams() []Stream {
	var out []Stream
	for _, name := range f.about.Streams {
		if s := f.streams[name]; s != nil {
			out = append(out, s.Stream)
		}
	}
	return out
}

// Close closes the file, and ends calls of Follow.
func (f *File) Close() (err error) {
	f.once.Do(func() {
		close(f.done)
		err = f.close()
	})
	return err
}

var (
	errSum  = errors.New("its sum is not what it was")
	errSize = errors.New("it unpacks to more than any that an export writes")
)

// frame reads and decompresses a frame, which may have at most most bytes.
func (f *File) frame(e extent, most int) ([]byte, error) {
	if e.Length > packedMost(most) {
		return nil, errSize
	}
	packed := make([]byte, e.Length)
	if _, err := f.from.ReadAt(packed, e.Offset); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.name, err)
	}
	if sumOf(packed) != e.Sum {
		return nil, errSum
	}
	size, err := sizeOf(packed)
	if err != nil {
		return nil, err
	}
	if size > uint64(most) {
		return nil, fmt.Errorf("%w: %d bytes, the most is %d", errSize, size, most)
	}
	return f.unpack(packed, int(size))
}

// unpack decompresses a frame of size bytes, and fails if there are more.
func (f *File) unpack(packed []byte, size int) ([]byte, error) {
	f.unpacking.Lock()
	defer f.unpacking.Unlock()
	if err := f.unpacker.Reset(bytes.NewReader(packed)); err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	var text bytes.Buffer
	text.Grow(size + 1 + bytes.MinRead)
	switch n, err := text.ReadFrom(io.LimitReader(f.unpacker, int64(size)+1)); {
	case err != nil:
		return nil, fmt.Errorf("unpack: %w", err)
	case n > int64(size):
		return nil, fmt.Errorf("%w: more than the %d bytes that it tells", errSize, size)
	default:
		return slices.Clip(text.Bytes()), nil
	}
}

// damaged is the error for a part of a stream that cannot be read.
func (f *File) damaged(s *stream, what string, err error) error {
	return fmt.Errorf("%s of %s in %s: %w: %w", what, s.Name, f.name, events.ErrDamaged, err)
}

// unpacked is a decompressed block.
type unpacked struct {
	text   []byte
	places []place
}

// find is the index of the first message of the block at or after a sequence.
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

// load reads a block, from the cache if it is there.
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

// read reads a block from the file.
func (f *File) read(s *stream, n int) (*unpacked, error) {
	b := s.Blocks[n]
	what := fmt.Sprintf("the block with the messages %d to %d", b.First, b.Last)
	text, err := f.frame(b.extent, maxBlock)
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

// cached limits the memory of the cached blocks, in bytes.
const cached = 32 << 20

// cache keeps the blocks that were added last. The zero value is ready to use.
type cache struct {
	mu     sync.Mutex
	blocks map[cacheKey]*unpacked
	order  []cacheKey
	size   int
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
	if _, there := c.blocks[key]; there || u.size() > cached {
		return
	}
	for c.size+u.size() > cached {
		c.size -= c.blocks[c.order[0]].size()
		delete(c.blocks, c.order[0])
		c.order = c.order[1:]
	}
	c.blocks[key], c.order, c.size = u, append(c.order, key), c.size+u.size()
}

// size is the memory of a block: its text, and for each message its place and a copy of the
// subject.
func (u *unpacked) size() int {
	return 2*len(u.text) + len(u.places)*int(unsafe.Sizeof(place{}))
}
