package program

// Operation says what an instruction does, apart from where it leads. The engine has a function for
// each, in a table.
type Operation uint8

// The operations.
const (
	NoOperation Operation = iota // it only leads somewhere, or was dropped
	OpActiveMask
	OpAligned
	OpArithmetic
	OpAssertFail
	OpAtomic
	OpBlockRank
	OpBulkCopy
	OpBulkZero
	OpClock
	OpCopy
	OpCopyAsync
	OpCopyMap
	OpElect
	OpEnter
	OpExplicitCluster
	OpFence
	OpFree
	OpGroupProduct
	OpIsSpace
	OpLeave
	OpLink
	OpLoad
	OpLoadFragment
	OpLoadMatrix
	OpMalloc
	OpMapAddress
	OpMatch
	OpMbarrier
	OpMoveMatrix
	OpNothing
	OpPass
	OpPassBack
	OpPendingCount
	OpPredAnd
	OpPredConst
	OpPredCopy
	OpPredOr
	OpPredXor
	OpPrintf
	OpProduct
	OpReduceAsync
	OpRedux
	OpReduxFloat
	OpReplaceMap
	OpRestore
	OpSave
	OpSelect
	OpShuffle
	OpSleep
	OpSparseProduct
	OpStore
	OpStoreAsync
	OpStoreFragment
	OpStoreMatrix
	OpSurfaceLoad
	OpSurfaceStore
	OpTensorCopy
	OpTexture
	OpTextureQuery
	OpVote
)

var operationNames = [...]string{
	OpActiveMask:      "activeMask",
	OpAligned:         "aligned",
	OpArithmetic:      "arithmetic",
	OpAssertFail:      "assertFail",
	OpAtomic:          "atomic",
	OpBlockRank:       "blockRank",
	OpBulkCopy:        "bulkCopy",
	OpBulkZero:        "bulkZero",
	OpClock:           "clock",
	OpCopy:            "copy",
	OpCopyAsync:       "copyAsync",
	OpCopyMap:         "copyMap",
	OpElect:           "elect",
	OpEnter:           "enter",
	OpExplicitCluster: "explicitCluster",
	OpFence:           "fence",
	OpFree:            "free",
	OpGroupProduct:    "groupProduct",
	OpIsSpace:         "isSpace",
	OpLeave:           "leave",
	OpLink:            "link",
	OpLoad:            "load",
	OpLoadFragment:    "loadFragment",
	OpLoadMatrix:      "loadMatrix",
	OpMalloc:          "malloc",
	OpMapAddress:      "mapAddress",
	OpMatch:           "match",
	OpMbarrier:        "mbarrier",
	OpMoveMatrix:      "moveMatrix",
	OpNothing:         "nothing",
	OpPass:            "pass",
	OpPassBack:        "passBack",
	OpPendingCount:    "pendingCount",
	OpPredAnd:         "predAnd",
	OpPredConst:       "predConst",
	OpPredCopy:        "predCopy",
	OpPredOr:          "predOr",
	OpPredXor:         "predXor",
	OpPrintf:          "printf",
	OpProduct:         "product",
	OpReduceAsync:     "reduceAsync",
	OpRedux:           "redux",
	OpReduxFloat:      "reduxFloat",
	OpReplaceMap:      "replaceMap",
	OpRestore:         "restore",
	OpSave:            "save",
	OpSelect:          "select",
	OpShuffle:         "shuffle",
	OpSleep:           "sleep",
	OpSparseProduct:   "sparseProduct",
	OpStore:           "store",
	OpStoreAsync:      "storeAsync",
	OpStoreFragment:   "storeFragment",
	OpStoreMatrix:     "storeMatrix",
	OpSurfaceLoad:     "surfaceLoad",
	OpSurfaceStore:    "surfaceStore",
	OpTensorCopy:      "tensorCopy",
	OpTexture:         "texture",
	OpTextureQuery:    "textureQuery",
	OpVote:            "vote",
}
