package storageepoch

// Decode is exported for fuzzing.
var Decode = decode
