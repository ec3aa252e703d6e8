package storageepoch

// Decode is for fuzzing.
var Decode = decode
