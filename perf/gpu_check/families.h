#pragma once

#include <vector>

#include "perf/gpu_check/bench.h"
#include "perf/gpu_check/verdict.h"

// What is checked and measured family by family: perf/gpu_check/<family>.cu.
namespace telegrad::gpu_check {

void VerifyCast(Verdict& verdict);
void VerifySign(Verdict& verdict);
void VerifyBlock(Verdict& verdict);
void VerifyBlockTop(Verdict& verdict);
void VerifySparse(Verdict& verdict);
void VerifySparseList(Verdict& verdict);
void VerifySelect(Verdict& verdict);
void VerifyDrawn(Verdict& verdict);
void VerifyRadix(Verdict& verdict);
void VerifyLowRank(Verdict& verdict);
void VerifyOptimizer(Verdict& verdict);
void VerifyHalf(Verdict& verdict);
void VerifyMxnet(Verdict& verdict);
void VerifyBatch(Verdict& verdict);

void MeasureCast(Arrays& arrays, std::vector<Row>& rows);
void MeasureSign(Arrays& arrays, std::vector<Row>& rows);
void MeasureBlock(Arrays& arrays, std::vector<Row>& rows);
void MeasureBlockTop(Arrays& arrays, std::vector<Row>& rows);
void MeasureSparse(Arrays& arrays, std::vector<Row>& rows);
void MeasureSparseList(Arrays& arrays, std::vector<Row>& rows);
void MeasureSelect(Arrays& arrays, std::vector<Row>& rows);
void MeasureDrawn(Arrays& arrays, std::vector<Row>& rows);
void MeasureRadix(Arrays& arrays, std::vector<Row>& rows);
void MeasureLowRank(Arrays& arrays, std::vector<Row>& rows);
void MeasureOptimizer(Arrays& arrays, std::vector<Row>& rows);
void MeasureHalf(Arrays& arrays, std::vector<Row>& rows);
// Chunks, and the gradients of networks in chunks.
void MeasureBatch(Arrays& arrays, std::vector<Row>& rows);
// After those whose peer it is.
void MeasureMxnet(Arrays& arrays, std::vector<Row>& rows);

}  // namespace telegrad::gpu_check
