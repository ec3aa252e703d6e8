package archive

import (
	"errors"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
)

// The limits of a file, whichever program wrote it: a reader takes less than 100 MB of memory
// for any one part. The writer respects them.
const (
	// maxBlock is the largest decompressed block, in bytes: a full block and one more message,
	// for which the bus allows 8 MiB.
	maxBlock = 16 << 20
	// maxIndex and maxList are the same for the index, which has some 120 bytes for each block
	// of 256 kB, and for the list of the subjects of a stream.
	maxIndex = 32 << 20
	maxList  = 64 << 20
	// maxStreams is the largest number of streams.
	maxStreams = 16 << 10
	// maxMessages is the largest number of messages in a block, given the shortest possible
	// message.
	maxMessages = blockSize/len(wordMessage+" 1 0 0 0 \n\n") + 1
	// maxWindow is the largest window of zstd, in bytes.
	maxWindow = 8 << 20
	// maxLine and maxRatio limit what is read of a file without its end: the length of a line,
	// in bytes, and the compression ratio.
	maxLine  = 1 << 20
	maxRatio = 1000
)

// packedMost is the largest compressed size of a frame of so many bytes: zstd adds a header, and
// a few bytes to each part that it cannot compress.
func packedMost(most int) int64 { return int64(most) + int64(most)>>8 + 64 }

// unsaid is the size, in bytes, from which on a zstd frame states its size.
const unsaid = 256

// sizeOf is the size that a frame states, or the upper limit if it states none.
func sizeOf(packed []byte) (uint64, error) {
	var h zstd.Header
	if err := h.Decode(packed); err != nil {
		return 0, fmt.Errorf("unpack: %w", err)
	}
	if !h.HasFCS {
		return unsaid - 1, nil
	}
	return h.FrameContentSize, nil
}

var errIndex = errors.New("the index is not as an export writes it")

// checkShape limits the memory of a decoded JSON text before it is decoded: each object of a
// valid index has more than 48 bytes, and each field more than 12.
func checkShape(text []byte) error {
	objects, fields := 64, 1024
	for _, c := range text {
		switch c {
		case '{', '[':
			objects--
		case ',':
			fields--
		}
	}
	if objects += len(text) / 48; objects < 0 {
		return fmt.Errorf("%w: it has too many entries for its size", errIndex)
	}
	if fields += len(text) / 12; fields < 0 {
		return fmt.Errorf("%w: it has too many fields for its size", errIndex)
	}
	return nil
}

// checkExtents checks that the frames follow each other without overlaps or holes, as the writer
// puts them, up to the index.
func (x *index) checkExtents(end int64) error {
	var at int64
	next := func(e extent) error {
		if at == 0 { // after the first line, whose length is stored nowhere else
			at = e.Offset
		}
		if e.Offset <= 0 || e.Offset != at || e.Length <= 0 || e.Length > end-e.Offset {
			return fmt.Errorf("%w: it has %d bytes at %d, where %d to %d are left", errIndex, e.Length, e.Offset, at, end)
		}
		at += e.Length
		return nil
	}
	for _, s := range x.Streams {
		for n, b := range s.Blocks {
			if err := next(b.extent); err != nil {
				return fmt.Errorf("block %d of %q: %w", n, s.Name, err)
			}
		}
		if err := next(s.Subjects); err != nil {
			return fmt.Errorf("the list of the subjects of %q: %w", s.Name, err)
		}
	}
	if len(x.Streams) > 0 && at != end {
		return fmt.Errorf("%w: the streams end at %d, and it begins at %d", errIndex, at, end)
	}
	return nil
}

// check checks that the blocks of a stream follow each other, and match the stream's state.
func (s *streamIndex) check() error {
	if s.State.Last == math.MaxUint64 {
		return fmt.Errorf("%w: it ends with message %d", errIndex, s.State.Last)
	}
	var last, messages uint64
	latest := int64(math.MinInt64)
	for n, b := range s.Blocks {
		switch {
		case b.First <= last || b.Last < b.First || b.Last > s.State.Last:
			return fmt.Errorf("%w: block %d has the messages %d to %d, behind %d and before %d", errIndex, n, b.First, b.Last, last, s.State.Last)
		case b.Messages < 1 || b.Messages > maxMessages || uint64(b.Messages-1) > b.Last-b.First:
			return fmt.Errorf("%w: block %d has %d messages, from %d to %d", errIndex, n, b.Messages, b.First, b.Last)
		case b.Latest < latest:
			return fmt.Errorf("%w: block %d is older than the one before it", errIndex, n)
		}
		last, latest, messages = b.Last, b.Latest, messages+uint64(b.Messages)
	}
	first := s.State.Last + 1
	if len(s.Blocks) > 0 {
		first = s.Blocks[0].First
	}
	if s.State.First != first || s.State.Messages != messages {
		return fmt.Errorf("%w: it has %d messages from %d, and says %d from %d", errIndex, messages, first, s.State.Messages, s.State.First)
	}
	return nil
}
