// Package util says nothing.
package util // want: is called "util"

import "fmt"

func init() { fmt.Println("imported") } // want: nothing happens by being imported

// Documented has a comment.
func Documented() {}

func Exported() {} // want: exported Exported has no comment

type Thing struct{} // a remark is enough

type Other struct { // want: exported Other has no comment
	Field int
}

// Do is documented.
func (Thing) Do() {}

func (*Thing) Undo() {} // want: exported Undo has no comment

func (Thing) String() string { return "the name says it all" }

var (
	Loud = 1 // beside it is enough

	Quiet = struct { // want: exported Quiet has no comment
		A int
	}{}
)
