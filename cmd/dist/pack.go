package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"
)

// pack makes a compressed archive of files and symbolic links under one directory. The same content gives the same
// bytes: files are in the order of their names, of one time, and belong to no user.
func pack(at time.Time, dir string, files map[string][]byte, links map[string]string) ([]byte, error) {
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	names := slices.Concat(slices.Collect(maps.Keys(files)), slices.Collect(maps.Keys(links)))
	slices.Sort(names)
	for _, name := range names {
		h := &tar.Header{Name: path.Join(dir, name), Mode: 0o644, ModTime: at, Size: int64(len(files[name])), Format: tar.FormatPAX}
		if target, link := links[name]; link {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, target, 0o777
		} else if name == "millrace" {
			h.Mode = 0o755
		}
		if err := archive.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := archive.Write(files[name]); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
